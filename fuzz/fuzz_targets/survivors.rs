//! Target `survivors` of crate `kvdrive-fuzz` for cargo-fuzz: alterations of what a power cut left: a pair, 88h, or a drive that says why it stays away.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("survivors").run)(bytes));
