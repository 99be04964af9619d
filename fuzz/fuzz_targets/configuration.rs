//! Target `configuration` of crate `kvdrive-fuzz` for cargo-fuzz: a TOML file over a profile: accepted, or one line
//! that names the file.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("configuration").run)(bytes));
