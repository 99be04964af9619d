//! The layout of a `hashlog`: its segments, and the fields of each page besides its records.

use kvdrive_content::Decoder;
use kvdrive_nvme::Key;

use crate::frame::FRAME_BYTES;
use crate::records::Format;

/// Fields of a log page between its frame and the heads of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFields {
    /// Every record up to this sequence was durable.
    pub synced: u64,
    /// Life of the segment: the sequence of its first record.
    pub life: u64,
    /// Pages of a segment.
    pub segment_pages: u32,
    /// No further page of the segment is written in this life.
    pub is_last: bool,
}

/// Bytes of these fields.
pub const OWN_BYTES: u32 = 24;

impl PageFields {
    /// The fields as bytes of a page.
    pub fn to_bytes(self) -> [u8; OWN_BYTES as usize] {
        let mut out = [0; OWN_BYTES as usize];
        out[..8].copy_from_slice(&self.synced.to_le_bytes());
        out[8..16].copy_from_slice(&self.life.to_le_bytes());
        out[16..20].copy_from_slice(&self.segment_pages.to_le_bytes());
        out[20..].copy_from_slice(&u32::from(self.is_last).to_le_bytes());
        out
    }

    /// The fields from the heads of a page; `None` if these are too short.
    pub fn of_heads(heads: &[u8]) -> Option<PageFields> {
        let mut own = Decoder::new(heads.get(FRAME_BYTES as usize..)?);
        let (synced, life) = (own.u64()?, own.u64()?);
        Some(PageFields { synced, life, segment_pages: own.u32()?, is_last: own.u32()? != 0 })
    }
}

/// Layout of the pages.
#[derive(Clone, Copy, Debug)]
pub struct SegmentShape {
    /// Records on pages.
    pub format: Format,
    /// Pages of a block.
    pub block_pages: u32,
    /// Pages of a segment.
    pub segment_pages: u32,
    /// Segments.
    pub segments: u32,
    /// Threads that write.
    pub threads: u32,
}

impl SegmentShape {
    /// Segments that are not available for pairs: an open one for each thread and for cleaning, and those
    /// that stay free for cleaning.
    pub fn reserved(threads: u32) -> u32 {
        threads + 1 + FREE_FOR_PUTS + 1
    }

    /// Bytes of records that count as a full segment. The other bytes of its pages are lost at the pages'
    /// ends, or make cleaning worthwhile when the store is full.
    pub fn usable(&self) -> u64 {
        u64::from(self.segment_pages - self.slack_pages()) * u64::from(self.format.room())
    }

    fn slack_pages(&self) -> u32 {
        (self.segment_pages / 16).max(2)
    }

    /// Bytes of live records that fit.
    pub fn capacity(&self) -> u64 {
        u64::from(self.segments - SegmentShape::reserved(self.threads)) * self.usable()
    }

    /// Longest value.
    pub fn longest_value(&self) -> u32 {
        self.format.longest_value(self.segment_pages - self.slack_pages())
    }

    /// Bytes charged for a record. A long record is charged an even share of a segment, because the room left
    /// at the end of a segment may be too short for it.
    pub fn charge(&self, key: &Key, value_bytes: u32) -> u64 {
        let pages = self.format.fit(0, key, value_bytes).new_pages;
        if pages > 1 && pages * 16 > self.segment_pages {
            return self.usable() / u64::from((self.segment_pages - self.slack_pages()) / pages).max(1);
        }
        let heads = crate::records::HEAD_BYTES * pages.saturating_sub(1) + crate::records::head_bytes(key);
        u64::from(heads + value_bytes)
    }

    /// The segment of a page.
    pub fn segment_of(&self, page: u32) -> u32 {
        page / self.segment_pages
    }

    /// First page of a segment.
    pub fn first_page(&self, segment: u32) -> u32 {
        segment * self.segment_pages
    }
}

/// Free segments that a put leaves: those that a delete leaves, and one for the deletes of a full store.
pub const FREE_FOR_PUTS: u32 = FREE_FOR_DELETES + 1;
/// Free segments that a delete leaves: those that cleaning leaves, and one for cleaning.
pub const FREE_FOR_DELETES: u32 = FREE_FOR_RECOVERY + 1;
/// Free segments that cleaning leaves: recovery needs one, and a second one if a power cut interrupts it.
pub const FREE_FOR_RECOVERY: u32 = 2;
