//! What changes in the value log, one record each, and the bytes of a record.
//!
//! A saved image and the records since then give the present state ([`super::ProtectedValueLog::apply`]).
//! Every record of an operation is handed out before the operation is acknowledged, in the order of the
//! changes. The journal frames, numbers and checks them; the bytes here still bear any damage: decoding never
//! panics and never allocates more than it was given.

use std::borrow::Cow;

use kvdrive_content::{Decoder, Piece, Region};
use kvdrive_link::Arrival;

use super::SegmentId;

/// Which end of the log grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Head {
    /// Values from the host.
    Host = 0,
    /// Values moved by garbage collection: it never waits for the host's head, nor mixes old values with new
    /// ones.
    Gc = 1,
}

impl Head {
    /// Both.
    pub const ALL: [Head; 2] = [Head::Host, Head::Gc];

    fn from_byte(byte: u8) -> Option<Head> {
        Head::ALL.into_iter().find(|head| *head as u8 == byte)
    }
}

/// One change of the value log.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// From now on the buffer, and not flash, has the page; these are its bytes.
    PageDirtied {
        /// Logical page.
        lpa: u32,
        /// All of it.
        content: Cow<'a, Region>,
    },
    /// Bytes were put into a page that the buffer has.
    BufferWrite {
        /// Logical page.
        lpa: u32,
        /// First byte within the page.
        at: u32,
        /// What lies there now.
        piece: Piece<'a>,
    },
    /// The page's program has completed: flash has it.
    PageProgrammed {
        /// Logical page.
        lpa: u32,
    },
    /// A segment was taken.
    SegmentOpened {
        /// It.
        segment: SegmentId,
        /// Whose values it takes.
        head: Head,
        /// Where it begins in the head's linear space.
        base: u64,
        /// Number of this opening; never used again.
        opening: u64,
    },
    /// A segment gets no more values.
    SegmentSealed {
        /// It.
        segment: SegmentId,
    },
    /// A segment's values are all dead; it was given back, and its pages forgotten.
    SegmentFreed {
        /// It.
        segment: SegmentId,
    },
    /// The packing policy placed a value.
    ValuePlaced {
        /// Where.
        head: Head,
        /// Its size.
        bytes: u32,
        /// How it came.
        arrival: Arrival,
    },
    /// The packing policy gave up what was free before this offset.
    Skipped {
        /// Where.
        head: Head,
        /// Offset in the head's linear space.
        at: u64,
    },
    /// The live bytes of a segment changed.
    Live {
        /// It.
        segment: SegmentId,
        /// By so many bytes.
        change: i64,
    },
}

/// Takes records. Must not call back into the value log.
pub trait RecordSink {
    /// Keeps one record.
    fn record(&self, record: &Record<'_>);
}

pub(super) fn head(reader: &mut Decoder<'_>) -> Option<Head> {
    Head::from_byte(reader.u8()?)
}

/// First byte of each record's bytes.
mod tag {
    pub const PAGE_DIRTIED: u8 = 1;
    pub const WRITE_BYTES: u8 = 2;
    pub const WRITE_PATTERN: u8 = 3;
    pub const PAGE_PROGRAMMED: u8 = 4;
    pub const SEGMENT_OPENED: u8 = 5;
    pub const SEGMENT_SEALED: u8 = 6;
    pub const SEGMENT_FREED: u8 = 7;
    pub const VALUE_PLACED: u8 = 8;
    pub const SKIPPED: u8 = 9;
    pub const LIVE: u8 = 10;
}

const ARRIVALS: [Arrival; 3] = [Arrival::Inline, Arrival::Dma, Arrival::Hybrid];

impl<'a> Record<'a> {
    /// Appends the record's bytes to `out`. They do not say how many they are; framing does.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |tag: u8, fields: &[&[u8]]| {
            out.push(tag);
            fields.iter().for_each(|field| out.extend_from_slice(field));
        };
        match self {
            Record::PageDirtied { lpa, content } => {
                put(tag::PAGE_DIRTIED, &[&lpa.to_le_bytes()]);
                content.encode(out);
            }
            Record::BufferWrite { lpa, at, piece: Piece::Bytes(bytes) } => {
                put(tag::WRITE_BYTES, &[&lpa.to_le_bytes(), &at.to_le_bytes(), bytes]);
            }
            Record::BufferWrite { lpa, at, piece: Piece::Pattern(pattern) } => {
                put(tag::WRITE_PATTERN, &[&lpa.to_le_bytes(), &at.to_le_bytes()]);
                pattern.encode(out);
            }
            Record::PageProgrammed { lpa } => put(tag::PAGE_PROGRAMMED, &[&lpa.to_le_bytes()]),
            Record::SegmentOpened { segment, head, base, opening } => put(
                tag::SEGMENT_OPENED,
                &[&segment.0.to_le_bytes(), &[*head as u8], &base.to_le_bytes(), &opening.to_le_bytes()],
            ),
            Record::SegmentSealed { segment } => put(tag::SEGMENT_SEALED, &[&segment.0.to_le_bytes()]),
            Record::SegmentFreed { segment } => put(tag::SEGMENT_FREED, &[&segment.0.to_le_bytes()]),
            Record::ValuePlaced { head, bytes, arrival } => {
                let arrival =
                    ARRIVALS.iter().position(|other| other == arrival).expect("all arrivals are listed");
                put(tag::VALUE_PLACED, &[&[*head as u8], &bytes.to_le_bytes(), &[arrival as u8]]);
            }
            Record::Skipped { head, at } => put(tag::SKIPPED, &[&[*head as u8], &at.to_le_bytes()]),
            Record::Live { segment, change } => {
                put(tag::LIVE, &[&segment.0.to_le_bytes(), &change.to_le_bytes()]);
            }
        }
    }

    /// The record of exactly these bytes; `None` when they are none.
    pub fn decode(bytes: &'a [u8]) -> Option<Record<'a>> {
        let mut reader = Decoder::new(bytes);
        let record = match reader.u8()? {
            tag::PAGE_DIRTIED => {
                Record::PageDirtied { lpa: reader.u32()?, content: Cow::Owned(reader.region()?) }
            }
            tag::WRITE_BYTES => {
                let (lpa, at) = (reader.u32()?, reader.u32()?);
                let rest = reader.take(reader.rest().len())?;
                Record::BufferWrite { lpa, at, piece: Piece::Bytes(rest) }
            }
            tag::WRITE_PATTERN => {
                let (lpa, at) = (reader.u32()?, reader.u32()?);
                Record::BufferWrite { lpa, at, piece: Piece::Pattern(reader.pattern()?) }
            }
            tag::PAGE_PROGRAMMED => Record::PageProgrammed { lpa: reader.u32()? },
            tag::SEGMENT_OPENED => Record::SegmentOpened {
                segment: SegmentId(reader.u32()?),
                head: head(&mut reader)?,
                base: reader.u64()?,
                opening: reader.u64()?,
            },
            tag::SEGMENT_SEALED => Record::SegmentSealed { segment: SegmentId(reader.u32()?) },
            tag::SEGMENT_FREED => Record::SegmentFreed { segment: SegmentId(reader.u32()?) },
            tag::VALUE_PLACED => Record::ValuePlaced {
                head: head(&mut reader)?,
                bytes: reader.u32()?,
                arrival: *ARRIVALS.get(reader.u8()? as usize)?,
            },
            tag::SKIPPED => Record::Skipped { head: head(&mut reader)?, at: reader.u64()? },
            tag::LIVE => {
                Record::Live { segment: SegmentId(reader.u32()?), change: reader.u64()?.cast_signed() }
            }
            _ => return None,
        };
        reader.is_at_end().then_some(record)
    }
}
