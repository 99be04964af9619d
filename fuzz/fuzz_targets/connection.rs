//! Target `connection` of crate `kvdrive-fuzz` for cargo-fuzz: an NVMe/TCP connection, in pieces: a status, a
//! termination or a close, and memory is returned.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("connection").run)(bytes));
