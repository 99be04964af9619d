//! Target `requests` of crate `kvdrive-fuzz` for cargo-fuzz: requests to a language model: operations of its cache, or
//! one line that names the place.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("requests").run)(bytes));
