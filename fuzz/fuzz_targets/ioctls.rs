//! Target `ioctls` of crate `kvdrive-fuzz` for cargo-fuzz: ioctls of a device node, with wrong pointers and lengths: a
//! status or an errno, and no stray write.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("ioctls").run)(bytes));
