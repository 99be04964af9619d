//! The value log's part of the protected image: everything that a power cut must not lose and that is not on flash.
//!
//! The image is a small model of the log. [`ProtectedValueLog::apply`] repeats each recorded event on it; where a
//! packing policy decided, the image has an instance of the policy that decides again in the same way. So a placement
//! costs a few bytes of journal, however much state the policy has.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_content::{Piece, Region};

use super::record::{Head, Record};
use super::segments::{Life, Segment};
use super::{LogShape, SegmentId, Vaddr};
use crate::packing::Packing;

/// Why bytes are no image, or a record does not fit one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the protected image of the value log is damaged: {0}")]
pub struct DamagedLog(pub &'static str);

/// Bytes of a segment: its id, head, whether it is sealed, base, opening and live bytes.
const SEGMENT_BYTES: u64 = 4 + 1 + 1 + 8 + 8 + 8;

impl LogShape {
    /// Most bytes of power-protected memory for a log of this shape with a buffer of `buffer_entries` pages: the
    /// buffer, two packing states, and the state of each segment.
    pub fn protected_bytes(&self, buffer_entries: u32) -> u64 {
        let buffer = u64::from(buffer_entries) * u64::from(self.page_bytes);
        buffer + self.packing.state_bytes() + 8 + SEGMENT_BYTES * u64::from(self.segments)
    }
}

/// One segment in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
struct ProtectedSegment {
    head: Head,
    sealed: bool,
    base: u64,
    opening: u64,
    live_bytes: u64,
}

/// The image as a value that is written to a record.
#[derive(Debug, BorshSerialize, BorshDeserialize)]
pub struct LogImage {
    /// Bytes of a page, pages of a segment, segments.
    shape: [u32; 3],
    next_opening: u64,
    /// State of each head's packing policy.
    packings: [Vec<u8>; 2],
    segments: BTreeMap<SegmentId, ProtectedSegment>,
    /// Pages that flash does not have, by logical page.
    pages: BTreeMap<u32, Region>,
}

/// See the head of this file.
pub struct ProtectedValueLog {
    shape: LogShape,
    packings: [Box<dyn Packing>; 2],
    /// All but the states of `packings`, which are filled in when it is written.
    image: LogImage,
}

fn numbers(shape: &LogShape) -> [u32; 3] {
    [shape.page_bytes, shape.segment_pages, shape.segments]
}

impl ProtectedValueLog {
    /// The image of a value log that nothing was ever written to.
    pub fn new(shape: &LogShape) -> ProtectedValueLog {
        ProtectedValueLog::of(shape, shape.packings(), 0, &mut std::iter::empty(), BTreeMap::new())
    }

    /// The image of a running log.
    pub(super) fn of(
        shape: &LogShape,
        packings: [Box<dyn Packing>; 2],
        next_opening: u64,
        segments: &mut dyn Iterator<Item = (SegmentId, Segment)>,
        pages: BTreeMap<u32, Region>,
    ) -> ProtectedValueLog {
        let protected = |(id, segment): (SegmentId, Segment)| {
            let Segment { life, head, base, opening, live_bytes, .. } = segment;
            let sealed = life != Life::Open;
            (id, ProtectedSegment { head, sealed, base, opening, live_bytes })
        };
        let segments = segments.map(protected).collect();
        let image = LogImage {
            shape: numbers(shape),
            next_opening,
            packings: [const { Vec::new() }; 2],
            segments,
            pages,
        };
        ProtectedValueLog { shape: shape.clone(), packings, image }
    }

    /// Repeats one change.
    ///
    /// # Errors
    /// When no log in this state can have made it. The image is of no use then.
    pub fn apply(&mut self, record: Record<'_>) -> Result<(), DamagedLog> {
        match record {
            Record::PageDirtied { lpa, content } => {
                self.check_page(lpa, &content)?;
                let before = self.image.pages.insert(lpa, content.into_owned());
                check(before.is_none(), "a page was dirty already")
            }
            Record::BytesWritten { lpa, at, bytes } => self.write(lpa, at, Piece::Bytes(&bytes)),
            Record::PatternWritten { lpa, at, pattern } => self.write(lpa, at, Piece::Pattern(pattern)),
            Record::PageProgrammed { lpa } => {
                let page = self.image.pages.remove(&lpa);
                check(page.is_some(), "a program of a page that is not buffered")
            }
            Record::SegmentOpened { segment, head, base, opening } => {
                check(segment.0 < self.shape.segments, "no such segment")?;
                check(opening >= self.image.next_opening && opening < u64::MAX, "an opening out of order")?;
                self.image.next_opening = opening + 1;
                let new = ProtectedSegment { head, sealed: false, base, opening, live_bytes: 0 };
                let before = self.image.segments.insert(segment, new);
                check(before.is_none(), "a segment was opened twice")
            }
            Record::SegmentSealed { segment } => {
                self.segment(segment)?.sealed = true;
                Ok(())
            }
            Record::SegmentFreed { segment } => {
                self.segment(segment)?;
                self.image.segments.remove(&segment);
                let lpas = self.shape.lpas(segment);
                self.image.pages.retain(|lpa, _| !lpas.contains(lpa));
                Ok(())
            }
            Record::ValuePlaced { head, bytes, arrival } => {
                check(bytes <= self.shape.packed_max_bytes, "a value is too large")?;
                let view = self.shape.view();
                let packing = self.packing(head)?;
                packing.place(bytes, arrival, &view);
                check(packing.frontier() < FAR, "the log is too long")
            }
            Record::Skipped { head, at } => {
                check(at < FAR, "the log is too long")?;
                self.packing(head)?.skip_to(at);
                Ok(())
            }
            Record::Live { segment, change } => {
                let segment = self.segment(segment)?;
                let live_bytes = segment.live_bytes.checked_add_signed(change);
                segment.live_bytes = live_bytes.ok_or(DamagedLog("more bytes died than were live"))?;
                Ok(())
            }
        }
    }

    fn write(&mut self, lpa: u32, at: u32, piece: Piece<'_>) -> Result<(), DamagedLog> {
        let end = u32::try_from(u64::from(at) + u64::from(piece.bytes())).unwrap_or(u32::MAX);
        check(end <= self.shape.page_bytes, "a write beyond its page")?;
        let page =
            self.image.pages.get_mut(&lpa).ok_or(DamagedLog("a write to a page that is not buffered"))?;
        page.write(at, piece);
        Ok(())
    }

    /// Can a value of `bytes` bytes lie here? The segment need not be in use any more: entries that newer
    /// ones replaced go stale.
    pub fn holds(&self, address: Vaddr, bytes: u32) -> bool {
        self.shape.has_room_at(address, bytes) || self.shape.may_be_large(address, bytes)
    }

    fn packing(&mut self, head: Head) -> Result<&mut Box<dyn Packing>, DamagedLog> {
        self.packings.get_mut(head as usize).ok_or(DamagedLog("a head at which nothing is packed"))
    }

    fn segment(&mut self, id: SegmentId) -> Result<&mut ProtectedSegment, DamagedLog> {
        self.image.segments.get_mut(&id).ok_or(DamagedLog("a segment that is not in use"))
    }

    fn check_page(&self, lpa: u32, content: &Region) -> Result<(), DamagedLog> {
        check(content.written_end() <= self.shape.page_bytes, "a page is too long")?;
        let segment = SegmentId(lpa / self.shape.segment_pages);
        let segment = self.image.segments.get(&segment);
        let segment = segment.ok_or(DamagedLog("a page of a segment that is not in use"))?;
        check(segment.head != Head::Large, "a page of a large value, which is not buffered")
    }

    /// Does the log own this page of flash, found after a power cut with this kind and tag? Other pages are left over
    /// from earlier uses, and can be trimmed.
    pub fn owns(&self, lpa: u32, kind: u8, tag: &[u8; 48]) -> bool {
        let segment = self.image.segments.get(&SegmentId(lpa / self.shape.segment_pages));
        segment.is_some_and(|segment| {
            let ours = super::page_kind(segment.head, segment.opening, 1);
            kind == ours.kind && *tag == ours.tag
        })
    }

    /// The image; the same state always gives the same one.
    pub fn image(&mut self) -> &LogImage {
        self.image.packings = self.packings.each_ref().map(|packing| packing.save());
        &self.image
    }

    /// The image of a log of this shape.
    ///
    /// # Errors
    /// No such log can have it.
    pub fn restore(image: LogImage, shape: &LogShape) -> Result<ProtectedValueLog, DamagedLog> {
        check(image.shape == numbers(shape), "it belongs to a drive of another geometry")?;
        check(image.next_opening < FAR, "too many openings")?;
        let mut packings = shape.packings();
        for (packing, saved) in packings.iter_mut().zip(&image.packings) {
            check(packing.restore(saved), "the state of a packing policy")?;
        }
        for (id, segment) in &image.segments {
            check(id.0 < shape.segments && segment.base < FAR, "no such segment")?;
            check(segment.opening < image.next_opening, "an opening out of order")?;
            check(segment.live_bytes <= shape.segment_bytes(), "more bytes are live than a segment has")?;
        }
        let log = ProtectedValueLog { shape: shape.clone(), packings, image };
        log.image.pages.iter().try_for_each(|(lpa, content)| log.check_page(*lpa, content))?;
        Ok(log)
    }

    pub(super) fn next_opening(&self) -> u64 {
        self.image.next_opening
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = (SegmentId, Segment)> {
        self.image.segments.iter().map(|(id, segment)| {
            let ProtectedSegment { head, sealed, base, opening, live_bytes } = *segment;
            let life = if sealed { Life::Sealed } else { Life::Open };
            (*id, Segment { life, head, base, opening, live_bytes, places: 0 })
        })
    }

    /// Logical pages that flash does not have.
    pub fn unstored(&self) -> impl Iterator<Item = u32> {
        self.image.pages.keys().copied()
    }

    /// Oldest open byte and frontier of a head.
    pub(super) fn pointers(&self, head: Head) -> (u64, u64) {
        let packing = &self.packings[head as usize];
        (packing.oldest_open(), packing.frontier())
    }

    pub(super) fn has_page(&self, lpa: u32) -> bool {
        self.image.pages.contains_key(&lpa)
    }

    pub(super) fn into_parts(self) -> ([Box<dyn Packing>; 2], BTreeMap<u32, Region>) {
        (self.packings, self.image.pages)
    }
}

/// Above every offset of a log; keeps sums of offsets inside 64 bits.
const FAR: u64 = 1 << 60;

fn check(holds: bool, what: &'static str) -> Result<(), DamagedLog> {
    if holds { Ok(()) } else { Err(DamagedLog(what)) }
}
