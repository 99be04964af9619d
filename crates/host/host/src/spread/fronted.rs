//! SAKER in front of each of several drives, as one pipeline: a batch has pairs of one drive.

use std::collections::VecDeque;
use std::time::Duration;

use kvdrive_content::Region;
use kvdrive_nvme::{Key, Status};
use kvdrive_saker::threaded;

use super::Spread;
use super::pipeline::{Pipeline, Tally};
use crate::Error;
use crate::client::{Answer, Call, Content};
use crate::pipelined::{Completion, FailedWrite, Pipelined};
use crate::saker::Front;

/// SAKERs of several drives as one pipeline. A call with a key is that of its drive's SAKER. Lists and iterators sync all of
/// them, and go to the drives by a [`Pipeline`].
///
/// A drive that SAKER finds off is lost: the call that found it and every later call to its keys end with
/// [`Status::HOST_PATH_ERROR`], its pending writes are lost with it, and the others continue.
pub struct Fronted<'d, V> {
    spread: Spread,
    /// By drive; `None`: it is lost.
    fronts: Vec<Option<Front>>,
    below: Pipeline<'d, V>,
    tally: Tally,
    ended: VecDeque<Completion<V>>,
    /// The error by which the last drive was lost.
    failure: Option<Error>,
}

impl<'d, V: Content> Fronted<'d, V> {
    /// The SAKERs in the order of `spread`'s names; none for a drive that is lost from the beginning. `below` has the
    /// same drives.
    ///
    /// # Panics
    /// There are not as many as names.
    pub fn new(
        spread: Spread,
        fronts: impl IntoIterator<Item = Option<Front>>,
        below: Pipeline<'d, V>,
    ) -> Fronted<'d, V> {
        let fronts: Vec<_> = fronts.into_iter().collect();
        assert_eq!(spread.drives(), fronts.len(), "each drive has a name");
        let tally = below.tally();
        Fronted { spread, fronts, below, tally, ended: VecDeque::new(), failure: None }
    }

    fn lose(&mut self, drive: usize) {
        let Some(front) = self.fronts[drive].take() else { return };
        let error = front.off();
        self.tally.note_lost(drive, &error);
        if self.fronts.iter().all(Option::is_none) {
            self.failure = Some(error);
        }
    }

    /// The answer of a drive's SAKER, unless the drive is lost.
    fn of_drive(
        &mut self,
        drive: usize,
        ask: impl FnOnce(&mut Front) -> Result<Answer, threaded::Error>,
    ) -> Result<Answer, Status> {
        let Some(front) = &mut self.fronts[drive] else { return Err(Status::HOST_PATH_ERROR) };
        match ask(front) {
            Ok(answer) => Ok(answer),
            Err(threaded::Error::Status(status)) => Err(status),
            Err(threaded::Error::Failed(_)) => unreachable!("a sync keeps them"),
            Err(threaded::Error::Off(_)) => {
                self.lose(drive);
                Err(Status::HOST_PATH_ERROR)
            }
        }
    }
}

impl<V: Content> Pipelined<V> for Fronted<'_, V> {
    fn has_room(&self) -> bool {
        self.ended.is_empty() && self.below.has_room()
    }

    fn under_way(&self) -> u32 {
        self.ended.len() as u32 + self.below.under_way()
    }

    fn begin(&mut self, call: Call<()>, value: V, mut into: Region) -> Result<(), V> {
        let key = match call {
            Call::List { .. } | Call::Seek { .. } | Call::Next { .. } | Call::Close { .. } => {
                if matches!(call, Call::List { .. } | Call::Seek { .. }) {
                    for drive in 0..self.fronts.len() {
                        // A drive that is lost answers below.
                        _ = self.of_drive(drive, |front| front.sync().map(|()| Answer::Done));
                    }
                }
                return self.below.begin(call, value, into);
            }
            _ => call.key(),
        };
        let result = match key {
            Some(key) => {
                let drive = key.with_bytes(|key| self.spread.place(key));
                let result = self.of_drive(drive, |front| front.call(&call, value.piece(), &mut into));
                self.tally.note(drive, &call, value.piece().bytes(), &result);
                result
            }
            // SAKER makes the batches itself.
            None => Err(Status::INVALID_OPCODE),
        };
        self.ended.push_back(Completion { call, value, result, content: into });
        Ok(())
    }

    fn next_completion_within(&mut self, timeout: Option<Duration>) -> Result<Option<Completion<V>>, Error> {
        if let Some(error) = &self.failure {
            // Answers that came before the loss are returned.
            self.ended.retain(|ended| ended.result != Err(Status::HOST_PATH_ERROR));
            if self.ended.is_empty() {
                return Err(error.clone());
            }
        }
        match self.ended.pop_front() {
            Some(ended) => Ok(Some(ended)),
            None => self.below.next_completion_within(timeout),
        }
    }

    fn settle(&mut self, on_failed: &mut dyn FnMut(FailedWrite, Key, Status)) -> Result<(), Error> {
        for drive in 0..self.fronts.len() {
            let Some(front) = &mut self.fronts[drive] else { continue };
            match front.settle(on_failed) {
                Ok(()) => {}
                Err(Error::Status(status)) => return Err(Error::Status(status)),
                Err(_) => self.lose(drive),
            }
        }
        self.failure.clone().map_or(Ok(()), Err)
    }
}
