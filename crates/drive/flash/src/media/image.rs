//! The image of a medium that lives in memory, as bytes. Numbers are little endian.
//!
//! ```text
//!   head   "KVDMEDIA" | format u16 | version u16 | geometry 8 x u32 | identity 16 B | blocks u32 | check u64
//!   bad    the table of bad blocks, as [`crate::bad_blocks`] draws it
//!   block  block u32 | pages u32 | pages x (state u8, data bytes u32) | check u64      the frame
//!          pages x [header 88 B | header 88 B | data]                                 the content
//!   block  ...                                   only blocks that are not erased, in order
//!
//!   state: 0 erased, 1 programmed, 2 torn (no content)
//!   data, format 1 (bytes):  the page up to the last byte written; the rest is zero
//!   data, format 2 (tags):   literal u32 | literal bytes | patterns u32 | patterns x (at u32, seed u64, offset u32, bytes u32)
//! ```
//!
//! Head and frames have checks of their own: an image with a changed frame is refused with its position.
//! Content is checked page by page against the page's header: changed data gives a damaged page, a changed
//! header is read from its second copy, and a page that lost both is torn.

use std::rc::Rc;

use kvdrive_content::{Decoder, Region};
use xxhash_rust::xxh3::xxh3_64;

use super::MediumError;
use super::memory::{Cell, Format, Keep, Memory};
use crate::bad_blocks::{self, BadBlocks};
use crate::geometry::{BlockId, Geometry, Ppa};
use crate::identity::{IDENTITY_BYTES, Identity};
use crate::spare::{self, SPARE_USED_BYTES, Spare, data_check};
use crate::versions::{Unread, other_version};

const MAGIC: &[u8; 8] = b"KVDMEDIA";
/// The version of images that this program writes and reads.
const VERSION: u16 = 0;
const ERASED: u8 = 0;
const PROGRAMMED: u8 = 1;
const TORN: u8 = 2;
/// Bytes of a page in the frame.
const ROW_BYTES: usize = 5;

/// Names of the [`geometry_fields`], as configurations spell them.
pub(super) const GEOMETRY_KEYS: [&str; 8] = [
    "channels",
    "dies_per_channel",
    "planes",
    "blocks_per_die",
    "pages_per_block",
    "page_bytes",
    "spare_bytes",
    "spare_blocks",
];

pub(super) fn geometry_fields(geometry: &Geometry) -> [u32; 8] {
    [
        geometry.channels,
        geometry.dies_per_channel,
        geometry.planes,
        geometry.blocks_per_die,
        geometry.pages_per_block,
        geometry.page_bytes,
        geometry.spare_bytes,
        geometry.spare_blocks,
    ]
}

/// The geometry as bytes, for heads of images.
pub(super) fn geometry_bytes(geometry: &Geometry) -> Vec<u8> {
    geometry_fields(geometry).iter().flat_map(|field| field.to_le_bytes()).collect()
}

/// The whole content of `memory` as bytes.
pub(super) fn write<K: Keep>(memory: &Memory<K>) -> Vec<u8> {
    let used: Vec<usize> =
        (0..memory.blocks.len()).filter(|block| !memory.blocks[*block].is_empty()).collect();
    let mut out = Vec::new();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(K::FORMAT as u16).to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&geometry_bytes(&memory.geometry));
    out.extend_from_slice(&memory.identity.to_bytes());
    out.extend_from_slice(&(used.len() as u32).to_le_bytes());
    let check = xxh3_64(&out);
    out.extend_from_slice(&check.to_le_bytes());
    out.extend_from_slice(&memory.bad_blocks.to_bytes());
    for block in used {
        write_block(&mut out, memory, BlockId(block as u32));
    }
    out
}

fn write_block<K: Keep>(out: &mut Vec<u8>, memory: &Memory<K>, block: BlockId) {
    let pages = &memory.blocks[block.0 as usize];
    let mut frame = Vec::with_capacity(16 + pages.len() * ROW_BYTES);
    let mut content = Vec::new();
    frame.extend_from_slice(&block.0.to_le_bytes());
    frame.extend_from_slice(&(pages.len() as u32).to_le_bytes());
    for (page, cell) in pages.iter().enumerate() {
        let ppa = memory.geometry.ppa(block, page as u32);
        let (state, data_bytes) = match cell {
            Cell::Blank => (ERASED, 0),
            Cell::Torn => (TORN, 0),
            Cell::Unreadable(spare) => (PROGRAMMED, write_page(&mut content, ppa, spare, None)),
            Cell::Held(held) if held.has_data() => {
                let data = encode_region(K::FORMAT, &held.data().into_region());
                (PROGRAMMED, write_page(&mut content, ppa, &held.spare(), Some(data)))
            }
            Cell::Held(held) => (PROGRAMMED, write_page(&mut content, ppa, &held.spare(), None)),
        };
        frame.push(state);
        frame.extend_from_slice(&data_bytes.to_le_bytes());
    }
    let check = xxh3_64(&frame);
    out.extend_from_slice(&frame);
    out.extend_from_slice(&check.to_le_bytes());
    out.extend_from_slice(&content);
}

/// Writes a page's content and returns the length of its data. Discarded data gets a check that does not
/// match.
fn write_page(out: &mut Vec<u8>, ppa: Ppa, spare: &Spare, data: Option<Vec<u8>>) -> u32 {
    let check = match &data {
        Some(data) => data_check(ppa, data),
        None => !data_check(ppa, &[]),
    };
    let header = spare.encode(ppa, check);
    out.extend_from_slice(&header);
    out.extend_from_slice(&header);
    let data = data.unwrap_or_default();
    out.extend_from_slice(&data);
    data.len() as u32
}

fn encode_region(format: Format, data: &Region) -> Vec<u8> {
    match format {
        Format::Bytes => data.to_bytes(data.written_end()),
        Format::Tags => kvdrive_record::encode(data),
    }
}

/// Reader of an image: missing bytes are an error with its position.
struct ImageReader<'a>(Decoder<'a>);

impl<'a> ImageReader<'a> {
    fn or_short<T>(&self, read: Option<T>) -> Result<T, MediumError> {
        read.ok_or_else(|| MediumError::new(self.0.at(), "the image ends too early"))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], MediumError> {
        let taken = self.0.take(count);
        self.or_short(taken)
    }

    fn u32(&mut self) -> Result<u32, MediumError> {
        let number = self.0.u32();
        self.or_short(number)
    }

    /// Compares the check that comes next with the bytes from `from` to here.
    fn check(&mut self, from: usize, what: &str) -> Result<(), MediumError> {
        let expected = xxh3_64(self.0.read_since(from));
        let check = self.0.u64();
        if self.or_short(check)? == expected {
            return Ok(());
        }
        Err(MediumError::new(from, format!("the checksum of the {what} is wrong")))
    }
}

/// Rebuilds the pages that [`write`] wrote.
pub(super) fn read<K: Keep>(geometry: &Geometry, bytes: &[u8]) -> Result<Memory<K>, MediumError> {
    let mut reader = ImageReader(Decoder::new(bytes));
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(MediumError::new(0, "this is no image of a drive in memory"));
    }
    let word = reader.u32()?;
    let [format, version] = [0, 16].map(|shift| (word >> shift) as u16);
    let fields = reader.take(geometry_bytes(geometry).len())?;
    let identity = reader.take(IDENTITY_BYTES)?.try_into().expect("16 bytes");
    let identity = Identity::from_bytes(identity);
    let blocks = reader.u32()?;
    reader.check(0, "head")?;
    if version != VERSION {
        let [found, known] = [version, VERSION].map(|version| u8::try_from(version).unwrap_or(u8::MAX));
        return Err(MediumError::new(10, other_version("medium in memory", found, known)));
    }
    if format != K::FORMAT as u16 {
        return Err(MediumError::new(8, format!("the image has format {format}, not {}", K::FORMAT as u16)));
    }
    if fields != geometry_bytes(geometry) {
        return Err(MediumError::new(12, "the image belongs to a drive with another geometry"));
    }
    let table_at = reader.0.at();
    let table =
        BadBlocks::from_bytes(geometry, reader.take(BadBlocks::bytes(geometry))?).map_err(|unread| {
            match unread {
                Unread::Damaged => {
                    MediumError::new(table_at, "the checksum of the table of bad blocks is wrong")
                }
                Unread::Version(found) => MediumError::new(table_at, bad_blocks::of_another_version(found)),
            }
        })?;
    let mut memory = Memory::<K>::with(table, geometry, identity);
    for _ in 0..blocks {
        read_block(&mut reader, &mut memory)?;
    }
    if !reader.0.is_at_end() {
        return Err(MediumError::new(reader.0.at(), "bytes after the last block"));
    }
    Ok(memory)
}

fn read_block<K: Keep>(reader: &mut ImageReader<'_>, memory: &mut Memory<K>) -> Result<(), MediumError> {
    let start = reader.0.at();
    let (block, pages) = (reader.u32()?, reader.u32()?);
    let rows = reader.take((pages as usize).saturating_mul(ROW_BYTES))?;
    reader.check(start, "frame of a block")?;
    let geometry = memory.geometry;
    if block >= geometry.media_blocks() || pages > geometry.pages_per_block {
        return Err(MediumError::new(
            start,
            format!("block {block} with {pages} pages is not of this drive"),
        ));
    }
    let mut cells = Vec::with_capacity(pages as usize);
    for (page, row) in rows.chunks_exact(ROW_BYTES).enumerate() {
        let ppa = geometry.ppa(BlockId(block), page as u32);
        let data_bytes = u32::from_le_bytes(row[1..].try_into().expect("4 bytes")) as usize;
        cells.push(match row[0] {
            ERASED => Cell::Blank,
            TORN => Cell::Torn,
            PROGRAMMED => {
                let headers = reader.take(SPARE_USED_BYTES)?;
                let data = reader.take(data_bytes)?;
                read_page(ppa, headers, data, geometry.page_bytes)
                    .map_err(|found| MediumError::new(start, spare::of_another_version(ppa, found)))?
            }
            other => {
                return Err(MediumError::new(start, format!("page {page} has the unknown state {other}")));
            }
        });
    }
    memory.blocks[block as usize] = cells;
    Ok(())
}

/// The page, or the version of its header if that is another one.
fn read_page<K: Keep>(ppa: Ppa, headers: &[u8], data: &[u8], page_bytes: u32) -> Result<Cell<K>, u8> {
    let (spare, check) = match Spare::decode_plain_pair(ppa, headers) {
        Ok(found) => found,
        Err(Unread::Damaged) => return Ok(Cell::Torn),
        Err(Unread::Version(found)) => return Err(found),
    };
    let region =
        if data_check(ppa, data) == check { decode_region(K::FORMAT, data, page_bytes) } else { None };
    Ok(match region {
        Some(region) => Cell::Held(K::keep(&Rc::new(region).into(), &spare, &mut Vec::new())),
        None => Cell::Unreadable(Box::new(spare)),
    })
}

/// `None` if the bytes describe no page, whatever their check says.
fn decode_region(format: Format, data: &[u8], page_bytes: u32) -> Option<Region> {
    if format == Format::Bytes {
        return (data.len() <= page_bytes as usize).then(|| Region::from_bytes(data.to_vec()));
    }
    let region: Region = kvdrive_record::decode(data).ok()?;
    (region.written_end() <= page_bytes).then_some(region)
}
