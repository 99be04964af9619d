//! Engine `lsm`: values in a log, keys and addresses in a log-structured merge tree.

pub mod bloom;
pub mod compaction;
pub mod config;
pub mod cursor;
pub mod entry;
pub mod index;
pub mod layout;
mod levels;
mod lookup;
mod memtable;
mod merge;
pub mod recovery;
mod space;
mod table;

pub use config::IndexConfig;
pub use cursor::{Cursor, Snapshot};
pub use entry::{Entry, TableId, ValueLiveness};
pub use index::{Index, IndexCounters, IndexParts};
pub use recovery::{FoundTables, IndexImage, IndexJournal, IndexRecord};
