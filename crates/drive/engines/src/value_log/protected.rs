//! The value log's part of the protected image: all that a power cut must not lose, and nothing that flash
//! has.
//!
//! The image is a small model of the log of its own. [`ProtectedValueLog::apply`] repeats what a record says
//! happened; where the packing policy decided something, the image's own policy decides it again. So a
//! placement costs a few bytes of journal however much state the policy has.

use std::collections::BTreeMap;

use kvdrive_content::Decoder;
use kvdrive_content::Region;

use super::record::{Head, Record, head};
use super::segments::{Life, Segment};
use super::{LogShape, SegmentId, Vaddr};
use crate::packing::Packing;

/// Why bytes are no image, or a record does not fit one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the protected image of the value log is damaged: {0}")]
pub struct Damaged(pub &'static str);

/// Bytes of a segment: its id, head, whether it is sealed, base, opening and live bytes.
pub(super) const SEGMENT_BYTES: u64 = 4 + 1 + 1 + 8 + 8 + 8;

/// One segment in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProtectedSegment {
    head: Head,
    sealed: bool,
    base: u64,
    opening: u64,
    live_bytes: u64,
}

/// See the head of this file.
pub struct ProtectedValueLog {
    shape: LogShape,
    packings: [Box<dyn Packing>; 2],
    next_opening: u64,
    segments: BTreeMap<SegmentId, ProtectedSegment>,
    /// Pages that flash does not have, by logical page.
    pages: BTreeMap<u32, Region>,
}

/// First bytes of an image; the last one is the version.
const MAGIC: [u8; 4] = *b"kvl1";

impl ProtectedValueLog {
    /// The image of a value log that nothing was ever written to.
    pub fn new(shape: &LogShape) -> ProtectedValueLog {
        ProtectedValueLog {
            packings: shape.packings(),
            shape: shape.clone(),
            next_opening: 0,
            segments: BTreeMap::new(),
            pages: BTreeMap::new(),
        }
    }

    /// Takes over what a running log knows.
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
        ProtectedValueLog { shape: shape.clone(), packings, next_opening, segments, pages }
    }

    /// Repeats one change.
    ///
    /// # Errors
    /// When no log in this state can have made it. The image is of no use then.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), Damaged> {
        match record {
            Record::PageDirtied { lpa, content } => {
                self.check_page(*lpa, content)?;
                let before = self.pages.insert(*lpa, Region::clone(content));
                check(before.is_none(), "a page was dirty already")
            }
            Record::BufferWrite { lpa, at, piece } => {
                let fits = at.checked_add(piece.bytes()).is_some_and(|end| end <= self.shape.page_bytes);
                check(fits, "a write beyond its page")?;
                let page =
                    self.pages.get_mut(lpa).ok_or(Damaged("a write to a page that is not buffered"))?;
                page.write(*at, *piece);
                Ok(())
            }
            Record::PageProgrammed { lpa } => {
                let page = self.pages.remove(lpa);
                check(page.is_some(), "a program of a page that is not buffered")
            }
            Record::SegmentOpened { segment, head, base, opening } => {
                check(segment.0 < self.shape.segments, "no such segment")?;
                check(*opening >= self.next_opening && *opening < u64::MAX, "an opening out of order")?;
                self.next_opening = *opening + 1;
                let (head, base, opening) = (*head, *base, *opening);
                let new = ProtectedSegment { head, sealed: false, base, opening, live_bytes: 0 };
                let before = self.segments.insert(*segment, new);
                check(before.is_none(), "a segment was opened twice")
            }
            Record::SegmentSealed { segment } => {
                self.segment(*segment)?.sealed = true;
                Ok(())
            }
            Record::SegmentFreed { segment } => {
                self.segment(*segment)?;
                self.segments.remove(segment);
                let lpas = self.shape.lpas(*segment);
                self.pages.retain(|lpa, _| !lpas.contains(lpa));
                Ok(())
            }
            Record::ValuePlaced { head, bytes, arrival } => {
                check(*bytes <= self.shape.max_value_bytes, "a value is too large")?;
                let view = self.shape.view();
                let packing = &mut self.packings[*head as usize];
                packing.place(*bytes, *arrival, &view);
                check(packing.frontier() < FAR, "the log is too long")
            }
            Record::Skipped { head, at } => {
                check(*at < FAR, "the log is too long")?;
                self.packings[*head as usize].skip_to(*at);
                Ok(())
            }
            Record::Live { segment, change } => {
                let segment = self.segment(*segment)?;
                let live_bytes = segment.live_bytes.checked_add_signed(*change);
                segment.live_bytes = live_bytes.ok_or(Damaged("more bytes died than lived"))?;
                Ok(())
            }
        }
    }

    /// Can a value of `bytes` bytes lie here? The segment need not be in use any more: entries that newer
    /// ones replaced go stale.
    pub fn holds(&self, address: Vaddr, bytes: u32) -> bool {
        self.shape.has_room_at(address, bytes)
    }

    fn segment(&mut self, id: SegmentId) -> Result<&mut ProtectedSegment, Damaged> {
        self.segments.get_mut(&id).ok_or(Damaged("a segment that is not in use"))
    }

    fn check_page(&self, lpa: u32, content: &Region) -> Result<(), Damaged> {
        check(content.written_end() <= self.shape.page_bytes, "a page is too long")?;
        let segment = SegmentId(lpa / self.shape.segment_pages);
        check(self.segments.contains_key(&segment), "a page of a segment that is not in use")
    }

    /// Does the log own this page of flash, found after a power cut with this kind and tag? Others are left
    /// over from what the page held before, and can be trimmed.
    pub fn owns(&self, lpa: u32, kind: u8, tag: &[u8; 48]) -> bool {
        let segment = self.segments.get(&SegmentId(lpa / self.shape.segment_pages));
        segment.is_some_and(|segment| {
            let ours = super::page_kind(segment.head, segment.opening);
            kind == ours.kind && *tag == ours.tag
        })
    }

    /// Its bytes; the same state always gives the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let shape = [self.shape.page_bytes, self.shape.segment_pages, self.shape.segments];
        shape.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&self.next_opening.to_le_bytes());
        for packing in &self.packings {
            let saved = packing.save();
            out.extend_from_slice(&(saved.len() as u32).to_le_bytes());
            out.extend_from_slice(&saved);
        }
        out.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for (id, segment) in &self.segments {
            out.extend_from_slice(&id.0.to_le_bytes());
            out.extend_from_slice(&[segment.head as u8, u8::from(segment.sealed)]);
            for word in [segment.base, segment.opening, segment.live_bytes] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out.extend_from_slice(&(self.pages.len() as u32).to_le_bytes());
        for (lpa, region) in &self.pages {
            out.extend_from_slice(&lpa.to_le_bytes());
            region.encode(&mut out);
        }
        out
    }

    /// The image of these bytes, of a log of this shape.
    ///
    /// # Errors
    /// When they are not such an image.
    pub fn decode(bytes: &[u8], shape: &LogShape) -> Result<ProtectedValueLog, Damaged> {
        let mut reader = Decoder::new(bytes);
        let image = ProtectedValueLog::read(&mut reader, shape)?;
        check(reader.is_at_end(), "something follows it")?;
        Ok(image)
    }

    fn read(reader: &mut Decoder<'_>, shape: &LogShape) -> Result<ProtectedValueLog, Damaged> {
        let short = || Damaged("it ends early");
        let mut image = ProtectedValueLog::new(shape);
        check(reader.take(4).ok_or_else(short)? == MAGIC, "it begins otherwise")?;
        for word in [shape.page_bytes, shape.segment_pages, shape.segments] {
            check(reader.u32().ok_or_else(short)? == word, "it is of a drive of another shape")?;
        }
        image.next_opening = reader.u64().ok_or_else(short)?;
        check(image.next_opening < FAR, "too many openings")?;
        for packing in &mut image.packings {
            let length = reader.u32().ok_or_else(short)? as usize;
            let saved = reader.take(length).ok_or_else(short)?;
            check(packing.restore(saved), "the state of a packing policy")?;
        }
        for _ in 0..reader.u32().ok_or_else(short)? {
            let (id, segment) = read_segment(reader).ok_or_else(short)?;
            check(id.0 < shape.segments && segment.base < FAR, "no such segment")?;
            check(segment.opening < image.next_opening, "an opening out of order")?;
            check(segment.live_bytes <= shape.segment_bytes(), "more bytes live than a segment has")?;
            let before = image.segments.insert(id, segment);
            check(before.is_none(), "a segment was opened twice")?;
        }
        for _ in 0..reader.u32().ok_or_else(short)? {
            let lpa = reader.u32().ok_or_else(short)?;
            let region = reader.region().ok_or_else(short)?;
            image.check_page(lpa, &region)?;
            check(image.pages.insert(lpa, region).is_none(), "a page is there twice")?;
        }
        Ok(image)
    }

    pub(super) fn next_opening(&self) -> u64 {
        self.next_opening
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = (SegmentId, Segment)> {
        self.segments.iter().map(|(id, segment)| {
            let ProtectedSegment { head, sealed, base, opening, live_bytes } = *segment;
            let life = if sealed { Life::Sealed } else { Life::Open };
            (*id, Segment { life, head, base, opening, live_bytes, places: 0 })
        })
    }

    /// Logical pages that flash does not have.
    pub fn unstored(&self) -> impl Iterator<Item = u32> {
        self.pages.keys().copied()
    }

    /// Oldest open byte and frontier of a head.
    pub(super) fn pointers(&self, head: Head) -> (u64, u64) {
        let packing = &self.packings[head as usize];
        (packing.oldest_open(), packing.frontier())
    }

    pub(super) fn has_page(&self, lpa: u32) -> bool {
        self.pages.contains_key(&lpa)
    }

    pub(super) fn into_parts(self) -> ([Box<dyn Packing>; 2], BTreeMap<u32, Region>) {
        (self.packings, self.pages)
    }
}

/// Beyond what any log reaches; keeps sums of offsets inside 64 bits.
const FAR: u64 = 1 << 60;

fn read_segment(reader: &mut Decoder<'_>) -> Option<(SegmentId, ProtectedSegment)> {
    let id = SegmentId(reader.u32()?);
    let (head, sealed) = (head(reader)?, reader.u8()? != 0);
    let (base, opening, live_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
    Some((id, ProtectedSegment { head, sealed, base, opening, live_bytes }))
}

fn check(holds: bool, what: &'static str) -> Result<(), Damaged> {
    if holds { Ok(()) } else { Err(Damaged(what)) }
}
