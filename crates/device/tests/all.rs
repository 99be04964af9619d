//! The one integration-test binary of this crate.

#[path = "all/packing.rs"]
mod packing;

#[path = "all/beyond.rs"]
mod beyond;
#[path = "all/blocks.rs"]
mod blocks;
#[path = "all/commands.rs"]
mod commands;
#[path = "all/cores.rs"]
mod cores;
#[path = "all/crafted.rs"]
mod crafted;
#[path = "all/dispatch.rs"]
mod dispatch;
#[path = "all/dropped.rs"]
mod dropped;
#[path = "all/flash.rs"]
mod flash;
#[path = "all/ftl.rs"]
mod ftl;
#[path = "all/hash.rs"]
mod hash;
#[path = "all/hash_found.rs"]
mod hash_found;
#[path = "all/hash_sections.rs"]
mod hash_sections;
#[path = "all/lsm_drive.rs"]
mod lsm_drive;
#[path = "all/lsm_index.rs"]
mod lsm_index;
#[path = "all/machine_failures.rs"]
mod machine_failures;
#[path = "all/mock_engine.rs"]
mod mock_engine;
#[path = "all/page_buffer.rs"]
mod page_buffer;
#[path = "all/put_back.rs"]
mod put_back;
#[path = "all/random_drives.rs"]
mod random_drives;
#[path = "all/random_streams.rs"]
mod random_streams;
#[path = "all/rig.rs"]
mod rig;
#[path = "all/strays.rs"]
mod strays;
#[path = "all/support.rs"]
mod support;
#[path = "all/value_log.rs"]
mod value_log;
#[path = "all/value_log_storm.rs"]
mod value_log_storm;
