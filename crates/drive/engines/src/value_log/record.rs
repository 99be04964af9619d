//! What changes in the value log, one record each.
//!
//! A saved image and the records since then give the present state ([`super::ProtectedValueLog::apply`]).
//! Every record of an operation is handed out before the operation is acknowledged, in the order of the
//! changes.

use std::borrow::Cow;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_content::{Pattern, Region};
use kvdrive_link::Arrival;

use super::SegmentId;

/// The head that grows: each is an end of the log with values of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub enum Head {
    /// Values from the host.
    Host,
    /// Values moved by garbage collection, which so never waits for the host's head and does not mix old values with
    /// new ones.
    Gc,
    /// Large values: each has segments of its own, and no packing policy places it.
    Large,
}

impl Head {
    /// The heads that a packing policy fills.
    pub const PACKED: [Head; 2] = [Head::Host, Head::Gc];
}

/// One change of the value log.
#[derive(Clone, Debug, BorshSerialize, BorshDeserialize)]
pub enum Record<'a> {
    /// The page is in the buffer now, and its copy on flash, if any, is stale.
    PageDirtied {
        /// Logical page.
        lpa: u32,
        /// The bytes of the page.
        content: Cow<'a, Region>,
    },
    /// Bytes were put into a page that the buffer has.
    BytesWritten {
        /// Logical page.
        lpa: u32,
        /// First byte within the page.
        at: u32,
        /// The bytes.
        bytes: Cow<'a, [u8]>,
    },
    /// As `BytesWritten`, with bytes that a pattern describes.
    PatternWritten {
        /// Logical page.
        lpa: u32,
        /// First byte within the page.
        at: u32,
        /// The bytes.
        pattern: Pattern,
    },
    /// The page's program has completed: flash has it.
    PageProgrammed {
        /// Logical page.
        lpa: u32,
    },
    /// A segment was taken.
    SegmentOpened {
        /// Its number.
        segment: SegmentId,
        /// The head whose values the segment takes.
        head: Head,
        /// Where it begins in the head's linear space.
        base: u64,
        /// Number of this opening; never used again.
        opening: u64,
    },
    /// No more values are placed in a segment.
    SegmentSealed {
        /// Its number.
        segment: SegmentId,
    },
    /// A segment without live values was given back, and its pages were trimmed.
    SegmentFreed {
        /// Its number.
        segment: SegmentId,
    },
    /// The packing policy placed a value.
    ValuePlaced {
        /// The head of the log.
        head: Head,
        /// Its size.
        bytes: u32,
        /// How it arrived.
        arrival: Arrival,
    },
    /// The packing policy gave up free space before this offset.
    Skipped {
        /// The head of the log.
        head: Head,
        /// Offset in the head's linear space.
        at: u64,
    },
    /// The live bytes of a segment changed.
    Live {
        /// Its number.
        segment: SegmentId,
        /// The change in bytes.
        change: i64,
    },
}

/// Takes records. Must not call back into the value log.
pub trait RecordSink {
    /// Keeps one record.
    fn record(&self, record: Record<'_>);
}
