//! Writes a recording while a drive serves. A failed write ends the recording, not the drive; it is reported
//! when it happens and at the end.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use kvdrive_sim::TaskCell;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::format::{CHECKSUM_BYTES, End, FRAME_HEADER_BYTES, MAGIC, VERSION, kind, piece};
use crate::arrivals::{HostAction, Stamped};
use crate::memory::{BadAddress, HostMemory};
use kvdrive_content::Piece;

struct Output {
    to: Box<dyn Write + Send>,
    offset: u64,
    /// The frame in progress: its head, then its payload.
    frame: Vec<u8>,
    failed: Option<io::Error>,
    /// Called with the first error.
    on_failure: Option<OnFailure>,
}

/// Takes the error that has ended a recording.
type OnFailure = Box<dyn Fn(&io::Error) + Send>;

impl Output {
    fn begin(&mut self, kind: u8) {
        self.frame.clear();
        self.frame.extend_from_slice(&[0, 0, 0, 0, kind]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.frame.extend_from_slice(bytes);
    }

    fn end(&mut self) {
        let bytes = (self.frame.len() - FRAME_HEADER_BYTES) as u32;
        self.frame[..4].copy_from_slice(&bytes.to_le_bytes());
        let sum = xxh3_64_with_seed(&self.frame, self.offset);
        self.put(&sum.to_le_bytes());
        self.offset += self.frame.len() as u64;
        if self.failed.is_none() {
            self.failed = self.to.write_all(&self.frame).err();
            if let (Some(error), Some(told)) = (&self.failed, &self.on_failure) {
                told(error);
            }
        }
    }
}

/// A recording in progress.
pub struct Recorder(TaskCell<Output>);

impl Recorder {
    /// Starts a recording in `to`, which should be buffered; `configuration` is the text that a replay needs.
    pub fn new(mut to: Box<dyn Write + Send>, configuration: &str) -> io::Result<Recorder> {
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(configuration.len() as u32).to_le_bytes());
        head.extend_from_slice(configuration.as_bytes());
        let sum = xxh3_64_with_seed(&head, 0);
        to.write_all(&head)?;
        to.write_all(&sum.to_le_bytes())?;
        let offset = (head.len() + CHECKSUM_BYTES) as u64;
        Ok(Recorder(TaskCell::new(Output { to, offset, frame: Vec::new(), failed: None, on_failure: None })))
    }

    /// Calls `told` when a write fails, which ends the recording.
    pub fn on_failure(&self, told: impl Fn(&io::Error) + Send + 'static) {
        self.0.borrow_mut().on_failure = Some(Box::new(told));
    }

    pub(crate) fn arrival(&self, stamped: &Stamped) {
        let out = &mut *self.0.borrow_mut();
        match &stamped.arrived {
            HostAction::Queue { entries } => {
                out.begin(kind::QUEUE);
                out.put(&stamped.at.to_le_bytes());
                out.put(&entries.to_le_bytes());
            }
            HostAction::Commands { queue, sqes, submission_doorbells, completion_doorbells } => {
                out.begin(kind::COMMANDS);
                out.put(&stamped.at.to_le_bytes());
                out.put(&queue.to_le_bytes());
                out.put(&submission_doorbells.to_le_bytes());
                out.put(&completion_doorbells.to_le_bytes());
                sqes.iter().for_each(|sqe| out.put(sqe.as_bytes()));
            }
            HostAction::Reset { queue } => {
                out.begin(kind::RESET);
                out.put(&stamped.at.to_le_bytes());
                out.put(&queue.to_le_bytes());
            }
            HostAction::Change { change } => {
                out.begin(kind::CHANGE);
                out.put(&stamped.at.to_le_bytes());
                out.put(change.as_bytes());
            }
        }
        out.end();
    }

    /// Writes the last frame and everything buffered.
    pub(crate) fn finish(&self, end: &End) -> io::Result<()> {
        let out = &mut *self.0.borrow_mut();
        out.begin(kind::END);
        out.put(&[u8::from(end.power_cut)]);
        out.put(&end.events.to_le_bytes());
        out.put(&end.now.to_le_bytes());
        out.put(&end.completion_doorbells.to_le_bytes());
        out.end();
        match out.failed.take() {
            None => out.to.flush(),
            Some(error) => Err(error),
        }
    }
}

fn put_piece(out: &mut Output, piece: Piece<'_>) {
    match piece {
        Piece::Bytes(bytes) => {
            out.put(&[piece::BYTES]);
            out.put(&(bytes.len() as u32).to_le_bytes());
            out.put(bytes);
        }
        Piece::Pattern(pattern) => {
            out.put(&[piece::PATTERN]);
            out.put(&pattern.seed.to_le_bytes());
            out.put(&pattern.offset.to_le_bytes());
            out.put(&pattern.bytes.to_le_bytes());
        }
    }
}

/// Host memory that records the data read from it, and which writes it refused.
pub(crate) struct RecordingMemory<M> {
    inner: M,
    recorder: Rc<Recorder>,
    writes: Cell<u64>,
}

impl<M: HostMemory> RecordingMemory<M> {
    pub(crate) fn new(inner: M, recorder: Rc<Recorder>) -> RecordingMemory<M> {
        RecordingMemory { inner, recorder, writes: Cell::new(0) }
    }
}

impl<M: HostMemory> HostMemory for RecordingMemory<M> {
    fn holds_capsules(&self) -> bool {
        self.inner.holds_capsules()
    }

    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let out = &mut *self.recorder.0.borrow_mut();
        out.begin(kind::READ);
        out.put(&[0]);
        let result = self.inner.read(address, bytes, &mut |piece| {
            put_piece(out, piece);
            sink(piece);
        });
        out.frame[FRAME_HEADER_BYTES] = u8::from(result.is_err());
        out.end();
        result
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        let nth = self.writes.replace(self.writes.get() + 1);
        let result = self.inner.write(address, piece);
        if result.is_err() {
            let out = &mut *self.recorder.0.borrow_mut();
            out.begin(kind::REFUSED);
            out.put(&nth.to_le_bytes());
            out.end();
        }
        result
    }
}
