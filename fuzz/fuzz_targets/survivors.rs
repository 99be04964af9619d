//! Target `survivors` of crate `kvdrive-fuzz` for cargo-fuzz: alterations of the survivors of a power cut: a pair, 88h,
//! or a drive that refuses to start and says why.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("survivors").run)(bytes));
