//! Reads a recording, frame by frame.

use std::io::Read;
use std::ops::RangeInclusive;

use kvdrive_content::{Decoder, Pattern};
use kvdrive_nvme::Sqe;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::arrivals::{HostAction, Stamped};

use super::format::{CHECKSUM_BYTES, End, FRAME_HEADER_BYTES, MAGIC, VERSION, kind, piece};

/// Largest payload of a frame, bytes: more than 2 MiB of value in pieces of one byte each would take.
const LARGEST_PAYLOAD_BYTES: u32 = 64 << 20;
/// Slots that a queue may have (NVMe base specification).
const QUEUE_ENTRIES: RangeInclusive<u32> = 2..=1 << 16;

/// A recording that cannot be read, or does not match the drive that replays it.
#[derive(Debug, thiserror::Error)]
#[error("recording, byte {offset}: {what}")]
pub struct RecordingError {
    /// Offset of the frame that is wrong.
    pub offset: u64,
    /// The flaw of the file.
    pub what: String,
}

impl RecordingError {
    pub(super) fn new(offset: u64, what: impl Into<String>) -> RecordingError {
        RecordingError { offset, what: what.into() }
    }
}

/// One piece of the bytes of a DMA read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadPiece {
    Bytes(Vec<u8>),
    Pattern(Pattern),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Arrival(Stamped),
    /// `None`: the read was refused.
    Read(Option<Vec<ReadPiece>>),
    Refused {
        nth: u64,
    },
    End(End),
}

/// A recording whose head has been read.
pub struct Recording {
    input: Box<dyn Read>,
    pub(super) offset: u64,
    configuration: String,
}

impl Recording {
    /// Reads the head of a recording.
    pub fn open(mut input: Box<dyn Read>) -> Result<Recording, RecordingError> {
        let mut head = Vec::new();
        let short = || RecordingError::new(0, "the file ends inside its head");
        if !take(&mut input, MAGIC.len() + 8, &mut head, 0)? {
            return Err(short());
        }
        if head[..MAGIC.len()] != MAGIC[..] {
            return Err(RecordingError::new(0, "this is not a recording"));
        }
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let (version, bytes) = (number(8), number(12));
        if version != VERSION {
            return Err(RecordingError::new(
                8,
                format!("version {version}; this program reads version {VERSION}"),
            ));
        }
        if bytes > LARGEST_PAYLOAD_BYTES {
            return Err(RecordingError::new(12, format!("a configuration of {bytes} bytes")));
        }
        if !take(&mut input, bytes as usize + CHECKSUM_BYTES, &mut head, 12)? {
            return Err(short());
        }
        if split_checksum(&mut head) != xxh3_64_with_seed(&head, 0) {
            return Err(RecordingError::new(0, "the head is damaged"));
        }
        let offset = (head.len() + CHECKSUM_BYTES) as u64;
        let configuration = String::from_utf8(head.split_off(MAGIC.len() + 8))
            .map_err(|_| RecordingError::new(16, "the configuration is not text"))?;
        Ok(Recording { input, offset, configuration })
    }

    /// The text that was handed to [`super::Recorder::new`].
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Reads the rest of the file, which does not belong to the recording, and returns its length in bytes.
    pub(super) fn skip_rest(&mut self) -> std::io::Result<u64> {
        std::io::copy(&mut self.input, &mut std::io::sink())
    }

    /// Reads the next frame into `buffer`, a scratch buffer that holds an incomplete frame, too. `None` if
    /// the file ends before a frame does.
    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Frame>, RecordingError> {
        let offset = self.offset;
        buffer.clear();
        if !take(&mut self.input, FRAME_HEADER_BYTES, buffer, offset)? {
            return Ok(None);
        }
        let bytes = u32::from_le_bytes(buffer[..4].try_into().expect("4 bytes"));
        if bytes > LARGEST_PAYLOAD_BYTES {
            return Err(RecordingError::new(offset, format!("a frame of {bytes} bytes")));
        }
        if !take(&mut self.input, bytes as usize + CHECKSUM_BYTES, buffer, offset)? {
            return Ok(None);
        }
        self.offset += buffer.len() as u64;
        if split_checksum(buffer) != xxh3_64_with_seed(buffer, offset) {
            return Err(RecordingError::new(offset, "the frame is damaged"));
        }
        let mut fields = Fields(Decoder::new(&buffer[FRAME_HEADER_BYTES..]));
        let frame = fields.frame(buffer[4]).filter(|_| fields.0.is_at_end());
        let unknown =
            || RecordingError::new(offset, "the frame has a content that this program does not know");
        frame.ok_or_else(unknown).map(Some)
    }
}

/// Appends exactly `bytes` bytes to `to`; `false` if the file ends before.
fn take(input: &mut dyn Read, bytes: usize, to: &mut Vec<u8>, offset: u64) -> Result<bool, RecordingError> {
    let got = input.take(bytes as u64).read_to_end(to);
    got.map(|got| got == bytes).map_err(|error| RecordingError::new(offset, error.to_string()))
}

/// Removes the checksum from the end of the bytes that it covers.
fn split_checksum(bytes: &mut Vec<u8>) -> u64 {
    let sum = bytes.last_chunk().map(|sum| u64::from_le_bytes(*sum)).expect("it was read with them");
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    sum
}

/// Reads the fields of a payload.
struct Fields<'a>(Decoder<'a>);

impl Fields<'_> {
    fn frame(&mut self, kind: u8) -> Option<Frame> {
        Some(match kind {
            kind::QUEUE => {
                let (at, entries) = (self.0.u64()?, self.0.u32()?);
                QUEUE_ENTRIES.contains(&entries).then_some(())?;
                Frame::Arrival(Stamped { at, arrived: HostAction::Queue { entries } })
            }
            kind::COMMANDS => {
                let at = self.0.u64()?;
                let (queue, submission_doorbells) = (self.0.u16()?, self.0.u32()?);
                let completion_doorbells = self.0.u32()?;
                let mut sqes = Vec::with_capacity(self.0.rest().len() / Sqe::BYTES);
                while !self.0.is_at_end() {
                    sqes.push(Sqe::from_bytes(self.0.array()?));
                }
                let arrived =
                    HostAction::Commands { queue, sqes, submission_doorbells, completion_doorbells };
                Frame::Arrival(Stamped { at, arrived })
            }
            kind::READ => {
                let refused = self.0.u8()? != 0;
                let mut pieces = Vec::new();
                while !self.0.is_at_end() {
                    pieces.push(self.piece()?);
                }
                Frame::Read((!refused).then_some(pieces))
            }
            kind::RESET => {
                let (at, queue) = (self.0.u64()?, self.0.u16()?);
                Frame::Arrival(Stamped { at, arrived: HostAction::Reset { queue } })
            }
            kind::CHANGE => {
                let at = self.0.u64()?;
                let change = std::str::from_utf8(self.0.take(self.0.rest().len())?).ok()?.to_owned();
                Frame::Arrival(Stamped { at, arrived: HostAction::Change { change } })
            }
            kind::REFUSED => Frame::Refused { nth: self.0.u64()? },
            kind::END => Frame::End(End {
                power_cut: self.0.u8()? != 0,
                events: self.0.u64()?,
                now: self.0.u64()?,
                completion_doorbells: self.0.u32()?,
            }),
            _ => return None,
        })
    }

    fn piece(&mut self) -> Option<ReadPiece> {
        match self.0.u8()? {
            piece::BYTES => Some(ReadPiece::Bytes(self.0.counted()?.to_vec())),
            piece::PATTERN => Some(ReadPiece::Pattern(self.0.pattern()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};
    use std::sync::{Arc, Mutex};

    use super::super::{Recorder, replay};
    use super::*;
    use crate::meter::Class;
    use crate::pcie::{Interrupt, Link, LinkConfig};
    use crate::served::Built;

    const LINK: LinkConfig = LinkConfig {
        generation: 2,
        lanes: 8,
        max_payload_bytes: 256,
        dma_page_ns: 1_000,
        sqe_fetch_ns: 300,
        cqe_write_ns: 200,
        doorbell_ns: 100,
        interrupt: Interrupt::Msix,
        dma_granularity_bytes: 4096,
        sgl_block_ns: 0,
        sgl_page_saves_ns: 0,
        free_to_host: false,
        cxl_store_ns: 1_000,
        cxl_line_ns: 100,
    };

    #[derive(Clone, Default)]
    struct SharedOutput(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedOutput {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Reads back a recording with one arrival in it.
    fn read_back(arrived: HostAction) -> Result<Option<Frame>, RecordingError> {
        let output = SharedOutput::default();
        let recorder = Recorder::new(Box::new(output.clone()), "").expect("a vector takes everything");
        recorder.arrival(&Stamped { at: 7, arrived });
        let bytes = output.0.lock().expect("not poisoned").clone();
        Recording::open(Box::new(Cursor::new(bytes)))?.next(&mut Vec::new())
    }

    /// Replays crafted arrivals, without a last frame, with a drive that does nothing; returns the number of
    /// doorbells that crossed.
    fn play(arrivals: impl Iterator<Item = HostAction>) -> Result<u64, String> {
        let output = SharedOutput::default();
        let recorder = Recorder::new(Box::new(output.clone()), "").expect("a vector takes everything");
        arrivals.for_each(|arrived| recorder.arrival(&Stamped { at: 7, arrived }));
        let bytes = output.0.lock().expect("not poisoned").clone();
        let recording = Recording::open(Box::new(Cursor::new(bytes))).map_err(|error| error.to_string())?;
        let played = replay(recording, |sim, memory| {
            let link = Link::new(sim, LINK, memory);
            let meter = link.clone();
            let finish = move |_| meter.meter().payload().of(Class::Mmio);
            Ok(Built { link, drive: (), finish })
        });
        played.map_err(|error| error.to_string())
    }

    #[test]
    fn more_queues_than_there_are_numbers_are_refused() {
        let queues = |count| (0..count).map(|_| HostAction::Queue { entries: 2 });
        assert_eq!(play(queues(1 << 16)), Ok(0));
        // A head of 24 bytes without a configuration, and 25 bytes for each queue.
        let error = play(queues((1 << 16) + 1)).expect_err("queue 65 536 would be queue 0");
        assert!(error.starts_with(&format!("recording, byte {}: ", 24 + 25 * 65_536)), "{error}");
        assert!(error.contains("queue"), "{error}");
    }

    /// The maximal number of slots in the maximal number of queues: 2 MB of file.
    #[test]
    fn unused_slots_take_no_memory() {
        assert_eq!(play((0..1 << 16).map(|_| HostAction::Queue { entries: 1 << 16 })), Ok(0));
    }

    #[test]
    fn doorbells_are_counted_however_many_they_are() {
        let rung = HostAction::Commands {
            queue: 0,
            sqes: Vec::new(),
            submission_doorbells: u32::MAX,
            completion_doorbells: u32::MAX,
        };
        let crossed = play([HostAction::Queue { entries: 2 }, rung].into_iter());
        assert_eq!(crossed, Ok(2 * 4 * u64::from(u32::MAX)));
    }

    #[test]
    fn a_queue_of_a_size_that_no_queue_has_is_refused() {
        for entries in [0, 1, 65_537, u32::MAX] {
            let error = read_back(HostAction::Queue { entries }).expect_err("it is refused");
            assert!(error.what.contains("that this program does not know"), "{error}");
        }
        for entries in [2, 65_536] {
            let stamped = Stamped { at: 7, arrived: HostAction::Queue { entries } };
            let read = read_back(HostAction::Queue { entries }).expect("it is read");
            assert_eq!(read, Some(Frame::Arrival(stamped)));
        }
    }
}
