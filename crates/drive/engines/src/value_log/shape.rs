//! The shape of a value log: the sizes that its configuration, its pool and its buffer determine.

use std::ops::Range;

use super::{LARGEST_VALUE_BYTES, SegmentId, SegmentPool, Vaddr};
use crate::packing::{LogView, Packing, PackingConfig};

/// Largest value that goes through the page buffer, whatever the buffer has: 2 MiB.
const PACKED_MAX_BYTES: u32 = 2 << 20;

/// Properties of a log that never change. An image can only be restored to a log of the same shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogShape {
    pub(super) page_bytes: u32,
    pub(super) segment_pages: u32,
    pub(super) segments: u32,
    pub(super) packed_max_bytes: u32,
    pub(super) large_max_bytes: u32,
    pub(super) packing: PackingConfig,
}

impl LogShape {
    /// The shape of a log with this policy, out of this pool, with a buffer of `buffer_entries` pages.
    ///
    /// # Errors
    /// One line that names the key when the packing configuration is none.
    pub fn new(
        packing: &PackingConfig,
        pool: &SegmentPool,
        page_bytes: u32,
        buffer_entries: u32,
    ) -> Result<LogShape, String> {
        packing.build()?;
        let segment_bytes = u64::from(page_bytes) * u64::from(pool.segment_pages());
        // One page less than the share: a value need not begin with a page.
        let buffered = u64::from(page_bytes) * u64::from(value_share(buffer_entries) - 1);
        let most = segment_bytes.min(buffered).min(u64::from(PACKED_MAX_BYTES));
        // Segments in reserve, two that packing may hold open, and one that collection fills.
        let kept = pool.reserve().index_segments + pool.reserve().gc_segments + 3;
        let large_most = u64::from(pool.segments().saturating_sub(kept)) * segment_bytes;
        let large_most = large_most.min(u64::from(LARGEST_VALUE_BYTES)).max(most);
        Ok(LogShape {
            page_bytes,
            segment_pages: pool.segment_pages(),
            segments: pool.segments(),
            packed_max_bytes: most as u32,
            large_max_bytes: large_most as u32,
            packing: packing.clone(),
        })
    }

    /// Largest value that goes through the page buffer, in bytes: it fits a segment, and 3/8 of the buffer.
    pub fn packed_max_bytes(&self) -> u32 {
        self.packed_max_bytes
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.segment_pages)
    }

    /// Can a value of `bytes` bytes lie here? It is whole in a segment.
    pub(super) fn has_room_at(&self, address: Vaddr, bytes: u32) -> bool {
        let segment_bytes = self.segment_bytes();
        let fits = address.0 % segment_bytes + u64::from(bytes) <= segment_bytes;
        fits && address.0 / segment_bytes < u64::from(self.segments)
    }

    /// Can the segments of a large value of `bytes` bytes begin here?
    pub(super) fn may_be_large(&self, address: Vaddr, bytes: u32) -> bool {
        let segment_bytes = self.segment_bytes();
        let is_at_front = address.0.is_multiple_of(segment_bytes);
        is_at_front && address.0 / segment_bytes < u64::from(self.segments) && bytes <= LARGEST_VALUE_BYTES
    }

    pub(super) fn view(&self) -> LogView {
        LogView {
            page_bytes: self.page_bytes,
            segment_bytes: self.segment_bytes(),
            slots_cross_pages: self.packing.slots_cross_pages,
        }
    }

    pub(super) fn lpas(&self, id: SegmentId) -> Range<u32> {
        id.0 * self.segment_pages..(id.0 + 1) * self.segment_pages
    }

    /// The policies of the two heads, for stored and for moved values, in their first state.
    pub(super) fn packings(&self) -> [Box<dyn Packing>; 2] {
        let row = self.packing.row().expect("checked when the shape was made");
        [(row.build)(&self.packing), (row.build_for_moved)()]
    }
}

/// Entries that one value may need, and that the host may pin: 3/8 of the buffer.
pub(super) fn value_share(entries: u32) -> u32 {
    entries * 3 / 8
}
