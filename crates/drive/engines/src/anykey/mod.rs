//! Engine `anykey`: an LSM-tree of groups that are sorted by hash, after AnyKey (ASPLOS'25) and its variant AnyKey+.
//!
//! ```text
//!   store    ─► value log (page buffer) ─► memtable of keys and addresses
//!   flush    ─► groups of level 1: a record has its key and the address of its value
//!   tree     ─► a level above its limit gives neighbouring groups to the next; the last level has the values themselves
//!   log      ─► a full log has the values of its least referenced segments fetched into the groups that name them
//! ```
//!
//! A *group* is up to `anykey.group_pages` pages with the records of one range of keys, sorted by a hash. DRAM has its
//! bounds and 16 bits of the first hash of each page, so that a lookup reads one page of a group whatever its keys are
//! like; hash lists of the upper levels save the read of a group that has not the key. Within a group, an index in the
//! order of keys serves iterators.
//!
//! Begin reading at [`engine`](self), then at `work.rs`. The log of values is [`crate::value_log`]; pages of groups find
//! their place by [`kvdrive_flash::ftl`]. What is not the paper's: deletes, atomic batches, iterators of one moment,
//! power cuts, damaged pages (`docs/decisions/anykey.md`).

mod about;
mod batch;
mod config;
mod cursor;
mod engine;
mod fit;
mod group;
mod index;
mod journal;
mod levels;
mod lookup;
mod page;
mod piece;
mod recovery;
mod room;
mod work;

pub use config::AnyKeyConfig;
pub use engine::AnyKeyEngine;
