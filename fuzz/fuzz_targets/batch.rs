//! Target `batch` of crate `kvdrive-fuzz` for cargo-fuzz: a structured value: a wrong one gives an error that names the
//! flaw, a whole one equals that of a host.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("batch").run)(bytes));
