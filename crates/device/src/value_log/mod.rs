//! The value log.

mod pool;

pub use pool::{Reserve, SegmentId, SegmentPool, Use};

/// Byte address of a value in the log: logical page x page size + offset within the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vaddr(pub u64);
