//! Target `commands` of crate `kvdrive-fuzz` for cargo-fuzz: entries to a small drive of any engine: one completion for
//! each, and stored pairs stay.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("commands").run)(bytes));
