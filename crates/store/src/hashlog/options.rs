//! Options of `hashlog`.

use serde::{Deserialize, Serialize};

use super::state::SegmentShape;

/// What a thread does while a block of its is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteMode {
    /// It waits.
    #[default]
    Wait,
    /// It goes on, up to [`HashlogOptions::blocks_under_way`] blocks of all threads.
    Overlap,
}

/// Options of `hashlog`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HashlogOptions {
    /// Bytes that are written at a time: a number of whole pages; 0 for one. SAKER writes 4 KiB.
    pub block_bytes: u32,
    /// What a thread does while a block of its is written.
    pub write: WriteMode,
    /// With `write = "overlap"`: blocks that are on their way before a thread waits for the oldest.
    pub blocks_under_way: u32,
    /// Bytes that are cleaned and given back at a time. A value must fit into one. 0: a 256th of the pages, 8
    /// pages at least if there are enough of them, 4 MiB at most.
    pub segment_bytes: u64,
}

impl Default for HashlogOptions {
    fn default() -> Self {
        HashlogOptions {
            block_bytes: 4096,
            write: WriteMode::Wait,
            blocks_under_way: 64,
            segment_bytes: 4 << 20,
        }
    }
}

/// Pages of a segment, at least.
const LEAST_PAGES: u64 = 4;

impl HashlogOptions {
    /// Gives the options that are 0 their values for so many pages.
    pub fn fit(&mut self, page_bytes: u32, pages: u64, threads: u32) {
        /// A segment is at most so long: cleaning reads and writes one at a time.
        const MOST_BYTES: u64 = 4 << 20;
        const SEGMENTS: u64 = 256;
        let page = u64::from(page_bytes);
        if self.block_bytes == 0 {
            self.block_bytes = page_bytes;
        }
        if self.segment_bytes == 0 {
            // Of few pages, half of the segments at least are there for pairs.
            let least = (pages / (2 * u64::from(SegmentShape::reserved(threads)))).clamp(LEAST_PAGES, 8);
            self.segment_bytes = (pages / SEGMENTS).min(MOST_BYTES / page).max(least) * page;
        }
    }

    /// Are these possible on so many pages? If not, a line that begins with the key.
    pub fn check(&self, page_bytes: u32, pages: u64, threads: u32) -> Result<(), String> {
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(page_bytes) {
            return Err(format!(
                "block_bytes: {} is not a number of pages of {page_bytes} B",
                self.block_bytes
            ));
        }
        if self.blocks_under_way == 0 {
            return Err("blocks_under_way: 0 blocks cannot be under way".into());
        }
        let page = u64::from(page_bytes);
        let segment_pages = self.segment_bytes / page;
        if !self.segment_bytes.is_multiple_of(page) || !(LEAST_PAGES..=1 << 15).contains(&segment_pages) {
            return Err(format!(
                "segment_bytes: {} is not 4 to 32768 pages of {page_bytes} B",
                self.segment_bytes
            ));
        }
        if pages > u32::MAX.into() {
            return Err(format!("segment_bytes: {pages} pages are more than this store can number"));
        }
        let (segments, least) = (pages / segment_pages, u64::from(SegmentShape::reserved(threads)) + 2);
        if segments < least {
            return Err(format!(
                "segment_bytes: {} leaves {segments} segments, {threads} threads need {least}",
                self.segment_bytes
            ));
        }
        Ok(())
    }
}
