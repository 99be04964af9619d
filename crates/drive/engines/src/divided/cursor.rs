//! A cursor over the pairs of the engine and the divided values, as of one moment. It skips parts, heads and slots. If
//! the engine's order is that of keys, divided values come in that order; else they come after all other pairs, in the
//! order of their keys.

use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_nvme::{Key, Status};

use super::table::DividedValue;
use super::{Divided, Dividing, Found};
use crate::{Engine, Gap};

/// A pair that a cursor returns.
type Shown<E> = (Key, Found<<E as Engine>::Found>);

/// A cursor: see the module.
pub struct PairCursor<E: Engine> {
    /// The engine's cursor; `None` if the walk begins at a divided value, which come after all pairs of the engine.
    below: Option<E::Cursor>,
    /// The engine's next pair, if it has been read.
    ahead: Option<(Key, E::Found)>,
    has_ended: bool,
    divided: VecDeque<(Key, Rc<DividedValue>)>,
    /// Heads that cannot be read may hide keys; the cursor reports that once, at its end.
    is_lost: bool,
    /// The last failure reported that keys may be missing.
    was_lost: bool,
}

impl<E: Dividing> PairCursor<E> {
    pub(super) fn open(drive: &Divided<E>, from: Option<Key>) -> Result<PairCursor<E>, Status> {
        drive.catch_up()?;
        loop {
            drive.await_batches();
            // Does the walk begin at a divided value? Not if the engine has a pair of its own under the key, which
            // counts first.
            let begins_there = !E::ORDERED
                && from.is_some_and(|from| {
                    let is_divided = drive.table.borrow().get(&from).is_some();
                    is_divided && matches!(drive.engine.find(from), Ok(None))
                });
            let (version, divided) = {
                let table = drive.table.borrow();
                let since = if E::ORDERED || begins_there { from } else { None };
                (table.version(), table.from(since).collect())
            };
            let below = if begins_there { None } else { Some(drive.engine.open_cursor(from)?) };
            // If a divided value was stored or removed meanwhile, cursor and list may disagree about its key; then
            // begin again.
            if drive.table.borrow().version() == version && drive.batches.get() == 0 {
                let (has_ended, is_lost) = (begins_there, drive.lost.get() > 0);
                return Ok(PairCursor { below, ahead: None, has_ended, divided, is_lost, was_lost: false });
            }
        }
    }

    /// Reads the next pair of the engine into `ahead`, if it is not there yet and there is one.
    fn look_ahead(&mut self, drive: &Divided<E>) -> Result<(), Status> {
        while self.ahead.is_none() && !self.has_ended {
            let below = self.below.as_mut().expect("a cursor without the engine's pairs has ended with them");
            match drive.engine.next(below)? {
                Some((key, _)) if drive.names.are(&key) => {}
                Some(pair) => {
                    if !E::ORDERED {
                        self.divided.retain(|(key, _)| *key != pair.0);
                    }
                    self.ahead = Some(pair);
                }
                None => self.has_ended = true,
            }
        }
        Ok(())
    }

    pub(super) fn next(&mut self, drive: &Divided<E>) -> Result<Option<Shown<E>>, Status> {
        self.was_lost = false;
        self.look_ahead(drive)?;
        // The engine's pair of a key counts before its divided value.
        if let (Some((divided, _)), Some((whole, _))) = (self.divided.front(), &self.ahead)
            && divided == whole
        {
            drop(self.divided.pop_front());
        }
        let divided_is_next = match (self.divided.front(), &self.ahead) {
            (Some((divided, _)), Some((whole, _))) => E::ORDERED && divided < whole,
            (divided, None) => divided.is_some(),
            (None, Some(_)) => false,
        };
        if divided_is_next {
            let next = self.divided.pop_front();
            return Ok(next.map(|(key, value)| (key, Found::of_divided(value))));
        }
        if let Some((key, found)) = self.ahead.take() {
            return Ok(Some((key, Found::Whole(found))));
        }
        if std::mem::take(&mut self.is_lost) {
            self.was_lost = true;
            return Err(Status::UNRECOVERED_ERROR);
        }
        Ok(None)
    }

    pub(super) fn gap(&self, drive: &Divided<E>) -> Gap {
        match &self.below {
            Some(below) if !self.was_lost => drive.engine.gap(below),
            _ => Gap::default(),
        }
    }
}
