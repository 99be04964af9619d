//! Target `recording` of crate `kvdrive-fuzz` for cargo-fuzz: a recording whose checksums are corrected.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("recording").run)(bytes));
