//! Target `trace` of crate `kvdrive-fuzz` for cargo-fuzz: a trace of any format, compressed or not: operations, or one
//! line that names the place.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("trace").run)(bytes));
