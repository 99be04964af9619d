//! Atomic batches: values go to the log one by one, and then all entries go into the memtable in one step without a
//! suspension. No reader, compaction or power cut can come between two changes of that step.

use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::{Key, Status, StoreOptions};

use super::engine::{AnyKey, AnyKeyEngine};
use crate::lsm::entry::Entry;
use crate::value_log::Place;
use crate::{PairChange, newest};

/// The new state of a key: a value, which has landed, or none.
pub type Placed = (Key, Option<Place>);

impl AnyKeyEngine {
    /// [`crate::Engine::commit_all`].
    pub(super) fn commit_batch(&self, changes: Vec<PairChange>) -> Result<(), Status> {
        let mut placed: Vec<Placed> = Vec::new();
        for (key, value) in newest(changes) {
            let place = value.map(|value| self.place_value(&key, &value)).transpose()?;
            placed.push((key, place));
        }
        self.commit_together(&placed, StoreOptions::default())?;
        for _ in placed.iter().filter(|(_, place)| place.is_none()) {
            self.forget_deleted();
        }
        Ok(())
    }

    /// Puts a value into the log. As long as the place is held its segment stays.
    fn place_value(&self, key: &Key, value: &[u8]) -> Result<Place, Status> {
        let mut place = self.reserve(key, value.len() as u32, Arrival::Inline)?;
        if !value.is_empty() {
            self.copy_in(&place, 0, value);
        }
        self.settle(&place);
        place.landed();
        Ok(place)
    }
}

impl AnyKey {
    /// Points all keys at their values, or none if it fails.
    pub fn commit_together(&self, placed: &[Placed], options: StoreOptions) -> Result<(), Status> {
        self.index.charge_insertions(placed.len() as u32);
        // A batch without stores succeeds even if there is no room for stores.
        let stores = placed.iter().any(|(_, place)| place.is_some());
        loop {
            if stores {
                self.make_room_for_entry()?;
            }
            match self.commit_placed(placed, stores, options) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Status::CAPACITY_EXCEEDED) => self.make_room()?,
                Err(status) => return Err(status),
            }
        }
    }

    /// `false`, and nothing is done: room must be made, which is not allowed while keys are held.
    fn commit_placed(&self, placed: &[Placed], stores: bool, options: StoreOptions) -> Result<bool, Status> {
        // All tasks that hold several keys take them in this order.
        let _keys: Vec<_> = placed.iter().map(|(key, _)| self.keys.lock(*key)).collect();
        for (key, _) in placed {
            self.check_options(key, options)?;
        }
        self.index.make_room_for(placed.len() as u32)?;
        if stores && self.is_short() {
            return Ok(false);
        }
        let entry_of = |place: &Place| Entry {
            address: place.address(),
            bytes: place.bytes(),
            sequence: 0,
            tombstone: false,
        };
        let entries =
            placed.iter().map(|(key, place)| (*key, place.as_ref().map_or(Entry::removal(0), entry_of)));
        self.index.put_together(entries);
        Ok(true)
    }
}
