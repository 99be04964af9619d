//! Target `psk` of crate `kvdrive-fuzz` for cargo-fuzz: a PSK in the interchange format: refused, or reads back as it
//! was written.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("psk").run)(bytes));
