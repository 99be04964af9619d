//! Target `parts` of crate `kvdrive-fuzz` for cargo-fuzz: values in parts of two hosts with wrong lengths, and power
//! cuts: no partial value, other keys stay.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("parts").run)(bytes));
