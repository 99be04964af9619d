//! The value log.

mod pool;

pub use pool::{Reserve, SegmentId, SegmentPool, Use};
