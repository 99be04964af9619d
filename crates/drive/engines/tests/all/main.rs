//! The one integration-test binary of this crate.

mod anykey;
mod anykey_dram;
mod cores;
mod hash;
mod hash_cache;
mod hash_cuts;
mod hash_found;
mod hash_sections;
mod lsm_index;
mod packing;
mod page_buffer;
mod small_hash;
mod support;
mod value_log;
mod value_log_storm;
