//! What the first command after power-on does when the drive has had divided values: it finds those that count by slots
//! and heads, and removes parts of others.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::expanding;
use kvdrive_spec::{Key, Status};

use super::names::{NOTE_MAX_BYTES, Note};
use super::table::DividedValue;
use super::{Divided, Dividing, LARGEST_VALUE_BYTES, names};

/// How far that is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Loading {
    Due,
    UnderWay,
    Done,
}

impl<E: Dividing> Divided<E> {
    /// Every command begins with this: the table is that of the flash when it ends.
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

    /// Errors: a status that a second try may not have.
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
                // A pair of the engine that cannot be read counts, too.
                Err(Status::UNRECOVERED_ERROR) => value.is_hidden.set(true),
                Err(status) => return Err(status),
            }
        }
        for value in others {
            // A drive that must not write keeps them as they are.
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

    /// Enters a value if no later one has its key; returns the one of both that does not count.
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

/// What is found under a name.
enum Reading {
    Nothing,
    Note(Note),
    /// It cannot be read, or is no note.
    Lost,
}

/// Can a drive that has given so many numbers away have a value like this?
fn is_possible(number: u64, bytes: u32, part_bytes: u32, numbers: u64) -> bool {
    number < numbers
        && (1..=LARGEST_VALUE_BYTES).contains(&bytes)
        && part_bytes > 0
        && u64::from(bytes.div_ceil(part_bytes)) <= names::PARTS_MAX
}
