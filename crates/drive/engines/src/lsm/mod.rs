//! Engine `lsm`: values in a log, keys and addresses in a log-structured merge tree.
//!
//! Begin reading at `engine`, where the two are joined. This module has the index, and the parts that belong to both;
//! the log of values is [`crate::value_log`], and pages find their place on flash by [`kvdrive_flash::ftl`].

mod about;
mod batch;
pub mod bloom;
mod collection;
pub mod compaction;
pub mod config;
mod counting;
pub mod cursor;
mod engine;
pub mod entry;
pub(crate) mod fit;
mod futile;
pub mod index;
mod journal;
pub mod layout;
mod levels;
mod lookup;
mod maintenance;
pub(crate) mod memtable;
mod merge;
pub mod recovery;
mod room;
pub(crate) mod space;
mod table;

pub use config::{GcConfig, IndexConfig, LsmConfig};
pub use cursor::{Cursor, Snapshot};
pub use engine::{Found, LsmEngine, PairCursor};
pub use entry::{Entry, TableId, ValueLiveness};
pub use index::{FlushedSince, Index, IndexCounters, IndexParts};
pub use recovery::{FoundTables, IndexImage, IndexJournal, IndexRecord};
