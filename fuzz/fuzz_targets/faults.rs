//! Target `faults` of crate `kvdrive-fuzz` for cargo-fuzz: a TOML file of fault rules: accepted, or one line that names
//! the place.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("faults").run)(bytes));
