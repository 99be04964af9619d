//! Target `authentication` of crate `kvdrive-fuzz` for cargo-fuzz: a message of DH-HMAC-CHAP: refused with a reason, or
//! reads back as it was written.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("authentication").run)(bytes));
