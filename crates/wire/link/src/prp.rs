//! Physical region pages: how a command names host memory, and how the drive walks them.
//!
//! ```text
//!   1 page     PRP1 = first byte (may lie inside a page)        PRP2 unused
//!   2 pages    PRP1 = first byte                                PRP2 = second page
//!   n pages    PRP1 = first byte                                PRP2 = list: 8 bytes per further page;
//!              the last slot of a list page that is not the last entry names the next list page
//! ```
//!
//! NVMe base specification, section "Physical Region Page Entry and List". Lists are fetched only as far as
//! they are needed.

use kvdrive_nvme::{PAGE_BYTES, Sqe, Status};

use crate::memory::BadAddress;

const ENTRY_BYTES: u32 = 8;

/// A run of host memory; one from PRPs lies within a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub address: u64,
    /// Length.
    pub bytes: u32,
}

/// The host memory of one command, in order. Two segments need no allocation.
pub struct Segments {
    first: [Segment; 2],
    rest: Vec<Segment>,
    count: usize,
    /// The segments before this one have been taken, and `taken_bytes` of this one.
    next: usize,
    taken_bytes: u32,
    /// Bytes not taken.
    left_bytes: u64,
}

impl Segments {
    pub(crate) fn none() -> Segments {
        let none = Segment { address: 0, bytes: 0 };
        Segments { first: [none; 2], rest: Vec::new(), count: 0, next: 0, taken_bytes: 0, left_bytes: 0 }
    }

    /// Number of segments.
    pub fn len(&self) -> usize {
        self.count
    }

    /// No segments: a transfer of zero bytes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Length in bytes, without the part that was taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Takes the next segment, or `most` bytes of it; `None` when there is none, or `most` is 0.
    #[inline]
    pub(crate) fn take(&mut self, most: u32) -> Option<Segment> {
        if self.next == self.count || most == 0 {
            return None;
        }
        let whole = if self.next < 2 { self.first[self.next] } else { self.rest[self.next - 2] };
        let (left, address) = (whole.bytes - self.taken_bytes, whole.address + u64::from(self.taken_bytes));
        let bytes = left.min(most);
        self.left_bytes -= u64::from(bytes);
        if bytes < left {
            self.taken_bytes += bytes;
        } else {
            (self.next, self.taken_bytes) = (self.next + 1, 0);
        }
        Some(Segment { address, bytes })
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Segment> + '_ {
        self.first.iter().take(self.count).copied().chain(self.rest.iter().copied())
    }

    pub(crate) fn push(&mut self, segment: Segment) {
        match self.count {
            index @ (0 | 1) => self.first[index] = segment,
            _ => self.rest.push(segment),
        }
        self.count += 1;
        self.left_bytes += u64::from(segment.bytes);
    }
}

/// Fetches a part of a list from an address.
pub type FetchList<'a> = dyn FnMut(u64, &mut [u8]) -> Result<(), BadAddress> + 'a;

/// Walks the PRPs of `sqe`, which name `named_bytes` bytes, for the first `bytes` of them. The meaning of the
/// second entry and of the last slot of a list page depends on how much is *named*; lists are fetched only as
/// far as they are needed.
///
/// Errors: [`Status::PRP_OFFSET_INVALID`] for a first entry that is not dword aligned or a later one that is
/// not page aligned, [`Status::DATA_TRANSFER_ERROR`] for a list that is not mapped or a chain of lists
/// without end.
pub fn walk(
    sqe: &Sqe,
    named_bytes: u32,
    bytes: u32,
    fetch_list: &mut FetchList<'_>,
) -> Result<Segments, Status> {
    assert!(bytes <= named_bytes, "the first {bytes} of {named_bytes} bytes");
    let mut segments = Segments::none();
    if bytes == 0 {
        return Ok(segments);
    }
    let (prp1, prp2) = (sqe.prp1.get(), sqe.prp2.get());
    if !prp1.is_multiple_of(4) {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    let in_first = PAGE_BYTES - (prp1 % u64::from(PAGE_BYTES)) as u32;
    segments.push(Segment { address: prp1, bytes: bytes.min(in_first) });
    let mut left =
        WalkRest { bytes: bytes.saturating_sub(in_first), named_bytes: named_bytes.saturating_sub(in_first) };
    if left.bytes == 0 {
        return Ok(segments);
    }
    if left.named_bytes <= PAGE_BYTES {
        segments.push(page(prp2, left.bytes)?);
        return Ok(segments);
    }
    let mut list = prp2;
    // A chain in which every list names a page is never longer than this; a longer chain might be endless.
    for _ in 0..=left.bytes.div_ceil(PAGE_BYTES) {
        list = walk_list_page(fetch_list, list, &mut left, &mut segments)?;
        if left.bytes == 0 {
            return Ok(segments);
        }
    }
    Err(Status::DATA_TRANSFER_ERROR)
}

/// The rest of a walk.
struct WalkRest {
    /// Bytes that are wanted and not found yet.
    bytes: u32,
    /// Bytes that the command names and the walk has not passed.
    named_bytes: u32,
}

/// Reads one list page as far as needed; returns where the next one is.
fn walk_list_page(
    fetch_list: &mut FetchList<'_>,
    list: u64,
    left: &mut WalkRest,
    segments: &mut Segments,
) -> Result<u64, Status> {
    if !list.is_multiple_of(u64::from(ENTRY_BYTES)) {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    let room = (PAGE_BYTES - (list % u64::from(PAGE_BYTES)) as u32) / ENTRY_BYTES;
    let is_chained = left.named_bytes.div_ceil(PAGE_BYTES) > room;
    let pages = left.bytes.div_ceil(PAGE_BYTES).min(room - u32::from(is_chained));
    let is_last = u64::from(pages) * u64::from(PAGE_BYTES) >= u64::from(left.bytes);
    let mut entries = [0u8; PAGE_BYTES as usize];
    let entries = &mut entries[..((pages + u32::from(!is_last)) * ENTRY_BYTES) as usize];
    fetch_list(list, entries).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
    let (pages, next) = entries.split_at((pages * ENTRY_BYTES) as usize);
    for entry in pages.chunks_exact(ENTRY_BYTES as usize) {
        let here = left.bytes.min(PAGE_BYTES);
        segments.push(page(address(entry), here)?);
        left.bytes -= here;
        left.named_bytes -= here;
    }
    Ok(if is_last { 0 } else { address(next) })
}

fn address(entry: &[u8]) -> u64 {
    u64::from_le_bytes(entry.try_into().expect("an entry has 8 bytes"))
}

fn page(address: u64, bytes: u32) -> Result<Segment, Status> {
    if address.is_multiple_of(u64::from(PAGE_BYTES)) {
        Ok(Segment { address, bytes })
    } else {
        Err(Status::PRP_OFFSET_INVALID)
    }
}
