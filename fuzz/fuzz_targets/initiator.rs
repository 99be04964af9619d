//! Target `initiator` of crate `kvdrive-fuzz` for cargo-fuzz: the bytes that a controller sends to our initiator.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("initiator").run)(bytes));
