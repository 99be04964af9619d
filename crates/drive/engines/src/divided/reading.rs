//! The result of a lookup: a value that the engine has whole, or one that is read part by part.

use std::ops::Range;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_nvme::Status;
use kvdrive_sim::TaskCell;

use super::names::Names;
use super::table::DividedValue;
use crate::Engine;

/// A value that was found; `F` is the engine's type of a found value.
pub enum Found<F> {
    /// The engine has it whole.
    Whole(F),
    /// The value is divided.
    Divided(Reading<F>),
}

impl<F> Found<F> {
    pub(super) fn of_divided(value: Rc<DividedValue>) -> Found<F> {
        Found::Divided(Reading { value, part: TaskCell::default() })
    }
}

/// A divided value that is being read. Its parts stay as long as this is held; no part is held between two commands.
pub struct Reading<F> {
    value: Rc<DividedValue>,
    /// The part that was read last, and its index.
    part: TaskCell<Option<(u32, F)>>,
}

impl<F> Reading<F> {
    /// Size of the value.
    pub fn bytes(&self) -> u32 {
        self.value.bytes
    }

    /// Hands out the bytes of `range`, in order; the whole reading ends at byte `until` ([`crate::Engine::load`]).
    pub(super) fn read<E: Engine<Found = F>>(
        &self,
        engine: &E,
        names: &Names,
        range: Range<u32>,
        until: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        let mut at = range.start;
        while at < range.end {
            let (index, within) = (at / self.value.part_bytes, at % self.value.part_bytes);
            let part_bytes = self.value.bytes_of(index);
            let take = (part_bytes - within).min(range.end - at);
            let part = match self.part.take() {
                Some((held, part)) if held == index => part,
                _ => {
                    let name = names.part(self.value.number, index);
                    let found = engine.find(name)?.ok_or(Status::UNRECOVERED_ERROR)?;
                    if engine.value_bytes(&found) != part_bytes {
                        return Err(Status::UNRECOVERED_ERROR);
                    }
                    found
                }
            };
            let part_until = (until - (at - within)).min(part_bytes);
            engine.load(&part, within, take, part_until, sink)?;
            at += take;
            if at < until && within + take < part_bytes {
                *self.part.borrow_mut() = Some((index, part));
            }
        }
        Ok(())
    }
}
