//! Target `ioctls` of crate `kvdrive-fuzz` for cargo-fuzz: ioctls of a device node, with wild pointers and lengths: a status or an errno, and no stray byte.

#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("ioctls").run)(bytes));
