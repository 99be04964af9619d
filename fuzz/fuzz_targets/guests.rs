//! Target `guests` of crate `kvdrive-fuzz` for cargo-fuzz: a vfio-user client and its guest's memory: an error, a
//! status or an end, and no byte of another host.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("guests").run)(bytes));
