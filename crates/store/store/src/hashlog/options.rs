//! Options of `hashlog`.

use kvdrive_declare::{Section, Words};

use super::shape::{OWN_BYTES, SegmentShape};
use crate::frame::Kind;
use crate::records::Format;

/// The behaviour of a thread while one of its blocks is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum WriteMode {
    /// It waits.
    #[default]
    Wait,
    /// It continues until `blocks_under_way` blocks of all threads are being written.
    Overlap,
}

/// Options of `hashlog`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("hashlog")]
pub struct HashlogOptions {
    /// Bytes that are written at a time, a number of whole pages; 0: one page. SAKER writes 4 KiB.
    #[setting(is = Multiple(4096, 0, 4 << 20))]
    pub block_bytes: u32,
    /// `wait`: a thread waits while one of its blocks is written; `overlap`: it continues until
    /// `hashlog.blocks_under_way` blocks are being written.
    pub write: WriteMode,
    /// With `hashlog.write=overlap`: blocks of all threads that may be in flight before a thread waits for the oldest.
    #[setting(is = Integer(1, 1 << 16), when = &[When::one_of("hashlog.write", &["overlap"])])]
    pub blocks_under_way: u32,
    /// Bytes that are cleaned and freed at a time. A value must fit into one segment. 0: a 256th of the pages, at most
    /// 4 MiB, at least 8 pages (on small drives 4).
    #[setting(is = Multiple(4096, 0, 1 << 30), image)]
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
    /// Computes the options that are 0 for this number of pages.
    pub fn fit(&mut self, page_bytes: u32, pages: u64, threads: u32) {
        /// Most bytes of a segment: cleaning reads and writes one at a time.
        const MOST_BYTES: u64 = 4 << 20;
        const SEGMENTS: u64 = 256;
        let page = u64::from(page_bytes);
        if self.block_bytes == 0 {
            self.block_bytes = page_bytes;
        }
        if self.segment_bytes == 0 {
            // If there are few pages, at least half of the segments are available for pairs.
            let least = (pages / (2 * u64::from(SegmentShape::reserved(threads)))).clamp(LEAST_PAGES, 8);
            self.segment_bytes = (pages / SEGMENTS).min(MOST_BYTES / page).max(least) * page;
        }
    }

    /// The shape of segments that these options ask for.
    pub(super) fn shape(&self, page_bytes: u32, pages: u64, threads: u32) -> SegmentShape {
        let segment_pages = (self.segment_bytes / u64::from(page_bytes)) as u32;
        SegmentShape {
            format: Format::new(page_bytes, OWN_BYTES, Kind::Log),
            block_pages: self.block_bytes / page_bytes,
            segment_pages,
            segments: (pages / u64::from(segment_pages)) as u32,
            threads,
        }
    }

    /// Checks the options for these pages and threads. Errors: a line that begins with the key of an option.
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
