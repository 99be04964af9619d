#![no_main]

use kvdrive_fuzz::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target("authentication").run)(bytes));
