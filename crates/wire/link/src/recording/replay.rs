//! A recorded run in virtual time: the same arrivals at the same model times and the same bytes for every DMA
//! read give the same events.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::rc::Rc;

use kvdrive_sim::{Histogram, Sim, TaskCell};

use super::format::End;
use super::reader::{Frame, ReadPiece, Recording, RecordingError};
use crate::arrivals::{Began, HostAction, Ports, Stamped};
use crate::memory::{BadAddress, HostMemory};
use crate::pcie::Link;
use crate::queue::{Outlet, QueuePair};
use crate::served::{BuildError, Built, Controlled, RunEnd};
use kvdrive_content::Piece;

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording is damaged, or belongs to a drive that behaves differently.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The drive could not be built.
    #[error("the drive for the replay: {0}")]
    Build(BuildError),
}

/// Data read from the recording and not used yet, and the position in it.
struct Playback {
    sim: Sim,
    recording: TaskCell<Recording>,
    buffer: TaskCell<Vec<u8>>,
    reads: TaskCell<VecDeque<Option<Vec<ReadPiece>>>>,
    refused: TaskCell<VecDeque<u64>>,
    writes: Cell<u64>,
    end: Cell<Option<End>>,
    /// Where the recording was interrupted before its run ended.
    interruption: Cell<Option<Interruption>>,
    /// Bytes after the last frame.
    ignored_bytes: Cell<u64>,
    failure: TaskCell<Option<RecordingError>>,
}

/// The end of an interrupted recording.
#[derive(Clone, Copy)]
struct Interruption {
    at: u64,
    in_a_frame: bool,
}

impl Playback {
    /// Reads up to the next arrival and keeps the bytes that DMA will read before it; returns the arrival and the
    /// offset of its frame. `None` at the end.
    fn next_arrival(&self) -> Result<Option<(u64, Stamped)>, RecordingError> {
        loop {
            let offset = self.recording.borrow().offset;
            let frame = self.recording.borrow_mut().next(&mut self.buffer.borrow_mut())?;
            match frame {
                Some(Frame::Arrival(stamped)) => return Ok(Some((offset, stamped))),
                Some(Frame::Read(pieces)) => self.reads.borrow_mut().push_back(pieces),
                Some(Frame::Refused { nth }) => self.refused.borrow_mut().push_back(nth),
                None => {
                    // From here on, the run may have been stopped by an arrival that is not in the file.
                    let begun = self.buffer.borrow().len() as u64;
                    self.interruption.set(Some(Interruption { at: offset + begun, in_a_frame: begun > 0 }));
                    self.sim.halt();
                    return Ok(None);
                }
                Some(Frame::End(end)) => {
                    // A power cut came between two events, not between two steps of this run.
                    self.sim.step_every_event();
                    self.end.set(Some(end));
                    let rest = self.recording.borrow_mut().skip_rest();
                    self.ignored_bytes.set(rest.map_err(|error| self.error(error.to_string()))?);
                    return Ok(None);
                }
            }
        }
    }

    fn error(&self, what: impl Into<String>) -> RecordingError {
        RecordingError::new(self.recording.borrow().offset, what)
    }

    /// Fails the replay: later events have no meaning.
    fn fail(&self, error: RecordingError) {
        self.failure.borrow_mut().get_or_insert(error);
        self.sim.halt();
    }

    fn play(&self, ports: &Ports) -> Result<(), RecordingError> {
        let mut began = BTreeMap::<u16, Rc<Began>>::new();
        while let Some((offset, stamped)) = self.next_arrival()? {
            if stamped.at < self.sim.now() {
                return Err(RecordingError::new(offset, "an arrival is earlier than the previous one"));
            }
            self.sim.sleep_until_external(stamped.at);
            let outlet = |queue: &QueuePair| self.outlet(queue, began.entry(queue.id()).or_default(), ports);
            let applied = ports.apply(&stamped.arrived, outlet, |_| ());
            applied.map_err(|what| RecordingError::new(offset, what))?;
            if let HostAction::Commands { queue, sqes, .. } = &stamped.arrived {
                began.entry(*queue).or_default().note(sqes, stamped.at);
            }
        }
        Ok(())
    }

    /// Replays wait for no completions; the drive learns how long its commands took.
    fn outlet(&self, queue: &QueuePair, began: &Rc<Began>, ports: &Ports) -> Outlet {
        began.forget();
        let (is_admin, began, sim) = (queue.is_admin(), began.clone(), self.sim.clone());
        // The drive holds the link, which holds this closure: a weak reference avoids a cycle.
        let drive = Rc::downgrade(&ports.drive);
        Box::new(move |cqe| {
            if let (false, Some(drive)) = (is_admin, drive.upgrade()) {
                began.end(cqe.cid.get(), &*drive, sim.now());
            }
        })
    }

    /// Runs to the end of the recorded run and compares the numbers that do not depend on the kind of drive. Returns
    /// whether the power was cut there.
    fn run(&self, link: &Link) -> Result<bool, RecordingError> {
        let reached = |end: End| end.power_cut && self.sim.events() >= end.events;
        while !self.end.get().is_some_and(reached) && self.sim.step() {}
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.interruption.get().is_some() {
            return Ok(true);
        }
        let end = self.end.get().ok_or_else(|| self.error("the drive ended before the recording"))?;
        if end.power_cut {
            self.sim.halt();
        }
        link.count_doorbells(end.completion_doorbells);
        let here = (self.sim.events(), self.sim.now());
        if here != (end.events, end.now) || !self.reads.borrow().is_empty() {
            return Err(self.error(format!(
                "the replay ends after {} events at {} ns, the recorded run after {} at {} ns: it was made with another \
                 configuration or another version",
                here.0, here.1, end.events, end.now
            )));
        }
        Ok(end.power_cut)
    }

    /// Describes the missing part of the recording, if it is incomplete.
    fn interrupted(&self) -> std::io::Result<()> {
        let Some(Interruption { at, in_a_frame }) = self.interruption.get() else { return Ok(()) };
        let how = if in_a_frame { "in the middle of a frame" } else { "without the frame that ends a run" };
        let what = format!("the recording ends at byte {at}, {how}: its run was interrupted");
        Err(std::io::Error::new(ErrorKind::UnexpectedEof, what))
    }
}

/// The playback as host memory: reads return the recorded data, writes are dropped.
struct PlaybackMemory(Rc<Playback>);

impl HostMemory for PlaybackMemory {
    fn holds_capsules(&self) -> bool {
        true
    }

    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let playback = &*self.0;
        let bad = BadAddress { address, bytes };
        let Some(read) = playback.reads.borrow_mut().pop_front() else {
            playback.fail(playback.error("the drive reads host memory that the recorded one did not read"));
            return Err(bad);
        };
        let pieces = read.ok_or(bad)?;
        let recorded: u64 = pieces.iter().map(|piece| u64::from(borrow(piece).bytes())).sum();
        if recorded != u64::from(bytes) {
            playback.fail(
                playback.error(format!("the drive reads {bytes} bytes, the recorded one read {recorded}")),
            );
            return Err(bad);
        }
        pieces.iter().for_each(|piece| sink(borrow(piece)));
        Ok(())
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        let playback = &*self.0;
        let nth = playback.writes.replace(playback.writes.get() + 1);
        let mut refused = playback.refused.borrow_mut();
        if refused.front() == Some(&nth) {
            refused.pop_front();
            return Err(BadAddress { address, bytes: piece.bytes() });
        }
        Ok(())
    }
}

fn borrow(piece: &ReadPiece) -> Piece<'_> {
    match piece {
        ReadPiece::Bytes(bytes) => Piece::Bytes(bytes),
        ReadPiece::Pattern(pattern) => Piece::Pattern(*pattern),
    }
}

/// Replays `recording` with a drive in virtual time. `build` is the argument of [`crate::shared::Server::new`]; its
/// final function gets the end of the run, with the same counters and the same model time as the recorded run had.
///
/// The recording of an interrupted run is replayed up to its last arrival, as if the power had been cut
/// there; [`RunEnd::recording`] reports it.
pub fn replay<D, R, F>(
    recording: Recording,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError>,
) -> Result<R, ReplayError>
where
    D: Controlled,
    F: FnOnce(RunEnd) -> R,
{
    let sim = Sim::new();
    let playback = Rc::new(Playback {
        sim: sim.clone(),
        recording: TaskCell::new(recording),
        buffer: TaskCell::default(),
        reads: TaskCell::default(),
        refused: TaskCell::default(),
        writes: Cell::new(0),
        end: Cell::new(None),
        interruption: Cell::new(None),
        ignored_bytes: Cell::new(0),
        failure: TaskCell::default(),
    });
    let Built { link, drive, finish } =
        build(&sim, Rc::new(PlaybackMemory(playback.clone()))).map_err(ReplayError::Build)?;
    // The drive is told of completions after the last arrival, too.
    let drive = Rc::new(drive);
    let (player, ports) = (playback.clone(), Ports::new(link.clone(), drive.clone()));
    sim.spawn(move || {
        if let Err(error) = player.play(&ports) {
            player.fail(error);
        }
    });
    let ended = playback.run(&link);
    let result = ended.map(|power_cut| {
        let (recording, ignored_bytes) = (playback.interrupted(), playback.ignored_bytes.get());
        finish(RunEnd { lateness: Histogram::default(), sleeps: 0, power_cut, recording, ignored_bytes })
    });
    sim.clear();
    drop(drive);
    Ok(result?)
}
