//! Recovery of divided values, by the first command after power-on: it finds the values that count by their slots and
//! heads, and removes the parts of all others.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::expanding;
use kvdrive_nvme::{Key, Status};

use super::names::{NOTE_MAX_BYTES, Note};
use super::table::DividedValue;
use super::{Divided, Dividing, LARGEST_VALUE_BYTES, names};

/// How far recovery is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Loading {
    Due,
    UnderWay,
    Done,
}

impl<E: Dividing> Divided<E> {
    /// Every command calls this first. When it returns, the table agrees with the flash.
    #[inline]
    pub(super) fn catch_up(&self) -> Result<(), Status> {
        if self.loading.get() != Loading::Done {
            self.load_table()?;
        }
        self.sweep();
        Ok(())
    }

    /// Waits until no atomic batch is deleting divided values.
    #[inline]
    pub(super) fn await_batches(&self) {
        while self.batches.get() > 0 {
            self.turned.wait();
        }
    }

    fn load_table(&self) -> Result<(), Status> {
        loop {
            match self.loading.get() {
                Loading::Done => return Ok(()),
                Loading::UnderWay => self.turned.wait(),
                Loading::Due => break,
            }
        }
        self.loading.set(Loading::UnderWay);
        let loaded = self.find_values();
        self.loading.set(if loaded.is_ok() { Loading::Done } else { Loading::Due });
        self.turned.wake_all();
        loaded
    }

    /// Finds the divided values that count. Errors: a status that may not occur again at a second try.
    fn find_values(&self) -> Result<(), Status> {
        let issued = self.table.borrow().issued();
        *self.table.borrow_mut() = super::Table::new(issued);
        self.lost.set(0);
        let mut others = Vec::new();
        for slot in 0..issued.slots {
            let value = match self.read(self.names.slot(slot))? {
                Reading::Nothing => {
                    self.table.borrow_mut().give_back(slot);
                    continue;
                }
                Reading::Note(Note::Slot { number, bytes, part_bytes })
                    if is_possible(number, bytes, part_bytes, issued.numbers) =>
                {
                    Rc::new(DividedValue { number, slot, bytes, part_bytes, is_hidden: Cell::new(false) })
                }
                Reading::Note(_) | Reading::Lost => {
                    self.lost.set(self.lost.get() + 1);
                    continue;
                }
            };
            match self.read(self.names.head(value.number))? {
                Reading::Note(Note::Head { key }) => others.extend(self.newer(key, value)),
                Reading::Nothing => others.push(value),
                Reading::Note(Note::Slot { .. }) | Reading::Lost => self.lost.set(self.lost.get() + 1),
            }
        }
        let values: Vec<_> = self.table.borrow().from(None).collect();
        for (key, value) in values {
            match self.engine.find(key).map(|found| found.is_some()) {
                Ok(false) => {}
                Ok(true) => {
                    drop(self.table.borrow_mut().remove(&key));
                    others.push(value);
                }
                // An engine's own pair that cannot be read counts before the head, too.
                Err(Status::UNRECOVERED_ERROR) => value.is_hidden.set(true),
                Err(status) => return Err(status),
            }
        }
        for value in others {
            // A read-only drive cannot remove them.
            if self.journal.is_protected() {
                self.leaving.borrow_mut().push(value);
                continue;
            }
            match self.behead(&value) {
                Ok(()) => self.leave(value),
                Err(_) => self.lost.set(self.lost.get() + 1),
            }
        }
        Ok(())
    }

    /// Enters a value into the table unless a later one has its key. Returns the value that does not count, if there
    /// are two.
    fn newer(&self, key: Key, value: Rc<DividedValue>) -> Option<Rc<DividedValue>> {
        let mut table = self.table.borrow_mut();
        match table.get(&key) {
            Some(later) if later.number > value.number => Some(value),
            _ => table.insert(key, value),
        }
    }

    fn read(&self, name: Key) -> Result<Reading, Status> {
        let found = match self.engine.find(name) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Reading::Nothing),
            Err(Status::UNRECOVERED_ERROR) => return Ok(Reading::Lost),
            Err(status) => return Err(status),
        };
        let bytes = self.engine.value_bytes(&found);
        if bytes > NOTE_MAX_BYTES {
            return Ok(Reading::Lost);
        }
        let mut note = vec![0; bytes as usize];
        let loaded = self.engine.load(&found, 0, bytes, bytes, &mut expanding(&mut note));
        match loaded {
            Ok(()) => Ok(Note::of_bytes(&note).map_or(Reading::Lost, Reading::Note)),
            Err(Status::UNRECOVERED_ERROR) => Ok(Reading::Lost),
            Err(status) => Err(status),
        }
    }
}

/// The result of a lookup of a name.
enum Reading {
    Nothing,
    Note(Note),
    /// A pair that cannot be read, or that is no note.
    Lost,
}

/// Can a drive that has given out `numbers` numbers have a value like this?
fn is_possible(number: u64, bytes: u32, part_bytes: u32, numbers: u64) -> bool {
    number < numbers
        && (1..=LARGEST_VALUE_BYTES).contains(&bytes)
        && part_bytes > 0
        && u64::from(bytes.div_ceil(part_bytes)) <= names::PARTS_MAX
}
