//! Atomic batches: values go to the log one by one, and then all entries go into the memtable in one step without a
//! suspension.
//!
//! ```text
//!   for each value: reserve ─► bytes ─► landed       a cut here leaves bytes without an entry
//!   room in the memtable for all entries
//!   live bytes and entries of all of them            one step: before it nothing is there, after it everything
//! ```
//!
//! No reader, collection or power cut can come between two changes of that step, and its records are written to files
//! together. So entries need no mark of their batch, and recovery does not know batches.

use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::{Key, Status, StoreOptions};

use super::engine::{Lsm, LsmEngine};
use super::entry::Entry;
use crate::value_log::{Place, Vaddr};
use crate::{PairChange, newest};

/// The new state of a key: a value, which has landed, or none.
pub(super) type Placed = (Key, Option<Place>);

impl LsmEngine {
    /// [`crate::Engine::commit_all`].
    pub(super) fn commit_batch(&self, changes: Vec<PairChange>) -> Result<(), Status> {
        let changes = newest(changes);
        let mut placed: Vec<Placed> = Vec::with_capacity(changes.len());
        for (key, value) in changes {
            self.index.accept(&key, Vaddr(0), 0)?;
            let place = value.map(|value| self.place_value(&key, &value)).transpose()?;
            placed.push((key, place));
        }
        self.index.charge_insertions(placed.len() as u32);
        // A batch without stores succeeds even if there is no room for stores.
        let stores = placed.iter().any(|(_, place)| place.is_some());
        loop {
            if stores {
                self.make_room_for_entry()?;
            }
            match self.commit_placed(&placed, stores, StoreOptions::default()) {
                Ok(true) => break,
                Ok(false) => {}
                Err(Status::CAPACITY_EXCEEDED) => self.make_room()?,
                Err(status) => return Err(status),
            }
        }
        for _ in placed.iter().filter(|(_, place)| place.is_none()) {
            self.forget_deleted();
        }
        Ok(())
    }

    /// Puts a value into the log. As long as the place is held its segment stays.
    fn place_value(&self, key: &Key, value: &[u8]) -> Result<Place, Status> {
        let mut place = self.reserve(key, value.len() as u32, Arrival::Inline)?;
        self.index.accept(key, place.address(), place.bytes())?;
        if !value.is_empty() {
            self.copy_in(&place, 0, value);
        }
        self.settle(&place);
        place.landed();
        Ok(place)
    }
}

impl Lsm {
    /// Points all keys at their values. `false`, and nothing is done: the index must be checked for
    /// room, which is not allowed while keys are held.
    pub(super) fn commit_placed(
        &self,
        placed: &[Placed],
        stores: bool,
        options: StoreOptions,
    ) -> Result<bool, Status> {
        // All tasks that hold several keys take them in this order.
        let _keys: Vec<_> = placed.iter().map(|(key, _)| self.keys.lock(*key)).collect();
        for (key, _) in placed {
            self.check_options(key, options)?;
        }
        self.index.make_room_for(placed.len() as u32)?;
        if stores && !self.has_room_for_entry() {
            return Ok(false);
        }
        let entries =
            placed.iter().map(|(key, place)| (*key, place.as_ref().map_or(Entry::removal(0), entry_of)));
        self.index.put_together(entries, |entry| self.log.note_live(entry.address, entry.bytes));
        Ok(true)
    }
}

fn entry_of(place: &Place) -> Entry {
    Entry { address: place.address(), bytes: place.bytes(), sequence: 0, tombstone: false }
}
