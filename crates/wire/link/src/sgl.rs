//! Scatter-gather lists: how a command names host memory by descriptors, and how the drive walks them.
//!
//! ```text
//!   in the entry       data block                       the memory itself
//!                      segment, last segment            a list of descriptors, 16 bytes each
//!   in a segment       data blocks; the last descriptor is the next segment or last segment
//!   in a last segment  data blocks
//! ```
//!
//! NVMe base specification, section "Scatter Gather List". Lists are fetched only as far as they are needed. Bit
//! buckets, keys and offsets are refused: Identify does not offer them (SGLS).

use kvdrive_nvme::{SglDescriptor, Sqe, Status};
use zerocopy::FromBytes;

use crate::prp::{FetchList, Segment, Segments};

/// Most descriptors that are fetched for one command: a value of 256 MiB in pages.
const DESCRIPTORS_MAX: u64 = 1 << 16;
/// Descriptors that are fetched at a time.
const FETCHED: usize = 256;

/// Walks the SGL of `sqe` for the first `bytes` bytes of the memory that it names.
///
/// # Errors
/// [`Status::SGL_TYPE_INVALID`] for a kind of descriptor that is not supported,
/// [`Status::INVALID_SGL_DESCRIPTOR`] for a segment that is empty, has a part of a descriptor, or does not end the
/// list that it is in, and for more than 65 536 descriptors, [`Status::SGL_LENGTH_INVALID`] for a list of fewer bytes,
/// [`Status::DATA_TRANSFER_ERROR`] for a list that is not mapped.
pub fn walk(sqe: &Sqe, bytes: u32, fetch_list: &mut FetchList<'_>) -> Result<Segments, Status> {
    let mut reader = SegmentReader { segments: Segments::none(), left_bytes: bytes };
    let mut list = reader.take(sqe.sgl(), true)?;
    let mut fetched = 0;
    while let Some(List { address, descriptors, is_last }) = list {
        fetched += u64::from(descriptors);
        if fetched > DESCRIPTORS_MAX {
            return Err(Status::INVALID_SGL_DESCRIPTOR);
        }
        list = reader.take_list(address, descriptors, is_last, fetch_list)?;
    }
    if reader.left_bytes > 0 { Err(Status::SGL_LENGTH_INVALID) } else { Ok(reader.segments) }
}

/// A segment: descriptors in host memory.
struct List {
    address: u64,
    descriptors: u32,
    is_last: bool,
}

struct SegmentReader {
    segments: Segments,
    left_bytes: u32,
}

impl SegmentReader {
    /// Takes all descriptors of a segment that are needed; returns the next segment.
    fn take_list(
        &mut self,
        address: u64,
        descriptors: u32,
        is_last: bool,
        fetch_list: &mut FetchList<'_>,
    ) -> Result<Option<List>, Status> {
        let mut part = [0; FETCHED * SglDescriptor::BYTES];
        let (mut at, mut left) = (address, descriptors as usize);
        while left > 0 && self.left_bytes > 0 {
            let part = &mut part[..left.min(FETCHED) * SglDescriptor::BYTES];
            fetch_list(at, part).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
            for bytes in part.chunks_exact(SglDescriptor::BYTES) {
                left -= 1;
                let descriptor = SglDescriptor::read_from_bytes(bytes).expect("a chunk is a descriptor");
                let next = self.take(descriptor, left == 0 && !is_last)?;
                if next.is_some() || self.left_bytes == 0 {
                    return Ok(next);
                }
            }
            at = at.checked_add(part.len() as u64).ok_or(Status::DATA_TRANSFER_ERROR)?;
        }
        Ok(None)
    }

    /// Takes one descriptor; returns the segment that it names, if it `may_chain`.
    fn take(&mut self, descriptor: SglDescriptor, may_chain: bool) -> Result<Option<List>, Status> {
        let length = descriptor.length.get();
        match descriptor.kind {
            SglDescriptor::DATA_BLOCK => {
                let bytes = length.min(self.left_bytes);
                if bytes > 0 {
                    self.segments.push(Segment { address: descriptor.address.get(), bytes });
                    self.left_bytes -= bytes;
                }
                Ok(None)
            }
            kind @ (SglDescriptor::SEGMENT | SglDescriptor::LAST_SEGMENT) => {
                let is_whole = length > 0 && length.is_multiple_of(SglDescriptor::BYTES as u32);
                if !may_chain || !is_whole {
                    return Err(Status::INVALID_SGL_DESCRIPTOR);
                }
                let descriptors = length / SglDescriptor::BYTES as u32;
                let is_last = kind == SglDescriptor::LAST_SEGMENT;
                let list = List { address: descriptor.address.get(), descriptors, is_last };
                Ok((self.left_bytes > 0).then_some(list))
            }
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::memory::BadAddress;
    use zerocopy::IntoBytes;

    fn descriptor(kind: u8, address: u64, length: u32) -> SglDescriptor {
        SglDescriptor { kind, ..SglDescriptor::data_block(address, length) }
    }

    /// Lists by address.
    type Lists = BTreeMap<u64, Vec<SglDescriptor>>;

    fn walked(first: SglDescriptor, bytes: u32, lists: &Lists) -> Result<Vec<(u64, u32)>, Status> {
        let mut sqe = Sqe::new(1, 0, 1);
        sqe.set_sgl(first);
        let segments = walk(&sqe, bytes, &mut |address, out| {
            let bad = BadAddress { address, bytes: out.len() as u32 };
            let (from, list) = lists.range(..=address).next_back().ok_or(bad)?;
            let at = (address - from) as usize;
            let list = list.as_bytes();
            out.copy_from_slice(list.get(at..at + out.len()).ok_or(bad)?);
            Ok(())
        })?;
        Ok(segments.iter().map(|segment| (segment.address, segment.bytes)).collect())
    }

    const BLOCK: u8 = SglDescriptor::DATA_BLOCK;
    const SEGMENT: u8 = SglDescriptor::SEGMENT;
    const LAST: u8 = SglDescriptor::LAST_SEGMENT;

    #[test]
    fn blocks_of_segments_follow_each_other_and_the_last_is_cut_to_what_is_wanted() {
        let chained = vec![
            descriptor(BLOCK, 1, 10),
            descriptor(BLOCK, 2, 0),
            descriptor(BLOCK, 100, 5),
            descriptor(LAST, 0x900, 16),
        ];
        let lists = Lists::from([(0x100, chained), (0x900, vec![descriptor(BLOCK, 7, 50)])]);
        let first = descriptor(SEGMENT, 0x100, 64);
        assert_eq!(walked(first, 20, &lists), Ok(vec![(1, 10), (100, 5), (7, 5)]));
        assert_eq!(walked(first, 10, &lists), Ok(vec![(1, 10)]), "what is not needed is not looked at");
        assert_eq!(walked(first, 66, &lists), Err(Status::SGL_LENGTH_INVALID));
        assert_eq!(walked(descriptor(BLOCK, 9, 20), 20, &lists), Ok(vec![(9, 20)]));
    }

    #[test]
    fn a_list_that_is_no_list_gets_the_status_for_it() {
        let itself = vec![descriptor(BLOCK, 0, 0), descriptor(SEGMENT, 0, 32)];
        let in_middle = vec![descriptor(SEGMENT, 0, 16), descriptor(BLOCK, 0, 9)];
        let in_last = vec![descriptor(LAST, 0, 16)];
        let lists = Lists::from([(0, itself), (0x100, in_middle), (0x200, in_last)]);
        let cases = [
            (descriptor(SEGMENT, 0, 32), Status::INVALID_SGL_DESCRIPTOR, "its next segment is itself"),
            (descriptor(SEGMENT, 0x100, 32), Status::INVALID_SGL_DESCRIPTOR, "a segment before the end"),
            (descriptor(LAST, 0x200, 16), Status::INVALID_SGL_DESCRIPTOR, "a segment in the last one"),
            (descriptor(LAST, 0, 0), Status::INVALID_SGL_DESCRIPTOR, "empty"),
            (descriptor(LAST, 0, 17), Status::INVALID_SGL_DESCRIPTOR, "a part of a descriptor"),
            (descriptor(LAST, 0, u32::MAX - 15), Status::INVALID_SGL_DESCRIPTOR, "2^28 descriptors"),
            (descriptor(LAST, 1 << 40, 32), Status::DATA_TRANSFER_ERROR, "not mapped"),
            (descriptor(LAST, u64::MAX - 7, 32), Status::DATA_TRANSFER_ERROR, "beyond all addresses"),
            (descriptor(0x10, 0, 9), Status::SGL_TYPE_INVALID, "a bit bucket"),
            (descriptor(0x40, 0, 9), Status::SGL_TYPE_INVALID, "a block with a key"),
            (descriptor(SglDescriptor::DATA_BLOCK_OFFSET, 0, 9), Status::SGL_TYPE_INVALID, "an offset"),
        ];
        for (first, status, why) in cases {
            assert_eq!(walked(first, 9, &lists), Err(status), "{why}");
        }
    }
}
