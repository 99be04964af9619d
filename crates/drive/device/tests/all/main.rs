//! The one integration-test binary of this crate.

mod admin;
mod batches;
mod beyond;
mod blocks;
mod commands;
mod crafted;
mod dispatch;
mod dropped;
mod hostkv;
mod lsm_drive;
mod machine_failures;
mod memory;
mod mock_engine;
mod plain_port;
mod put_back;
mod queues;
mod random_drives;
mod random_streams;
mod rig;
mod saker;
mod small_drives;
#[path = "../../../engines/tests/all/small_hash.rs"]
mod small_hash;
mod strays;
