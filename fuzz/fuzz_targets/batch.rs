//! Target `batch` of crate `kvdrive-fuzz` for cargo-fuzz: a structured value: what is wrong is named, what is whole is what a host would have built.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("batch").run)(bytes));
