//! One head of the log: a packing policy, the segments that take its values, and its present pages.

use std::collections::VecDeque;

use super::SegmentId;
use crate::packing::Packing;

/// A page that takes values, with its entry in the buffer, so that it is found without a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPage {
    /// Its first byte in the head's linear space.
    pub start: u64,
    pub lpa: u32,
    pub segment: SegmentId,
    /// Its entry in the buffer, as long as that entry holds this page.
    pub slot: u32,
}

/// A segment that values can go to.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSegment {
    /// Its first byte in the head's linear space.
    pub base: u64,
    pub id: SegmentId,
}

pub(super) struct LogHead {
    pub packing: Box<dyn Packing>,
    /// Open segments, oldest first. The frontier is in the last one, the write pointer in any of them.
    pub window: VecDeque<OpenSegment>,
    /// All pages before this offset are closed; a page boundary.
    pub open_from: u64,
    /// The page for copied values and the page for DMA'd values, which differ under `backfill`.
    pages: [Option<OpenPage>; 2],
    /// Times a page had to leave before it was full.
    pub forced_jumps: u64,
}

impl LogHead {
    pub fn new(packing: Box<dyn Packing>) -> LogHead {
        LogHead { packing, window: VecDeque::new(), open_from: 0, pages: [None; 2], forced_jumps: 0 }
    }

    /// The open page at `start`, if it is one of the two.
    #[inline]
    pub fn open_page(&self, start: u64) -> Option<OpenPage> {
        let [first, second] = &self.pages;
        match (first, second) {
            (Some(page), _) if page.start == start => Some(*page),
            (_, Some(page)) if page.start == start => Some(*page),
            _ => None,
        }
    }

    pub fn remember(&mut self, page: OpenPage, copied: bool) {
        self.pages[usize::from(!copied)] = Some(page);
    }

    /// The segment that holds linear offset `at`.
    pub fn segment_at(&self, at: u64, segment_bytes: u64) -> Option<OpenSegment> {
        let holds = |segment: &&OpenSegment| segment.base <= at && at < segment.base + segment_bytes;
        self.window.iter().rev().find(holds).copied()
    }
}
