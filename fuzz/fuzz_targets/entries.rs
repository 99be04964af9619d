//! Target `entries` of crate `kvdrive-fuzz` for cargo-fuzz: submission entries of 64 B: each is refused, or reads back
//! as it was written.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("entries").run)(bytes));
