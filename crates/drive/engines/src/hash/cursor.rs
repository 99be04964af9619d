//! Listing in the order of the hash table.
//!
//! A cursor shows the pairs that existed when it was opened ([`super::snapshot`]), each once, in the order of
//! their slots. It starts at the slot of the given key, or at the slot that key would have. So a host that continues
//! from the last key of an answer gets that key again, and then the keys after it. The KV command set leaves the order
//! of List to the drive.

use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_flash::Purpose;
use kvdrive_nvme::{Key, Status};

use super::core::{HashState, Lookup, LookupPurpose, PairRead};
use super::section::{Entry, Probe};
use super::snapshot::Snapshot;

/// A place in a snapshot of the hash table.
pub struct HashCursor {
    core: Rc<HashState>,
    snapshot: Rc<Snapshot>,
    /// Slots of the section at the snapshot's position that may have had pairs; `None` until the section is
    /// read.
    slots: Option<VecDeque<u32>>,
}

impl Drop for HashCursor {
    fn drop(&mut self) {
        if !self.core.sim.halted() {
            self.core.drop_released(self.core.snapshots.close(&self.snapshot));
        }
    }
}

impl HashCursor {
    pub(super) fn open(core: &Rc<HashState>, from: Option<Key>) -> Result<HashCursor, Status> {
        let position = match from {
            None => (0, 0),
            Some(key) => match core.walk(&key, LookupPurpose::Read)? {
                Lookup::Found(spot, slot, _) => (spot.section, slot),
                Lookup::Absent(_) => {
                    let Probe { section, tag } = core.probe(&key, 0);
                    (section, core.cache.format().first_slot(tag))
                }
            },
        };
        Ok(HashCursor { core: core.clone(), snapshot: core.snapshots.open(position), slots: None })
    }

    /// The next pair.
    ///
    /// Errors: [`Status::ITERATOR_LOST`] if more changed since the opening than is kept; the host has to open
    /// a new one. A section or pair that cannot be read; the next call continues after it.
    pub(super) fn next(&mut self) -> Result<Option<PairRead>, Status> {
        let core = self.core.clone();
        loop {
            if self.snapshot.is_given_up() {
                return Err(Status::ITERATOR_LOST);
            }
            let (section, from) = self.snapshot.position();
            let Some(slots) = &self.slots else {
                if section >= core.cache.sections() {
                    return Ok(None);
                }
                match self.slots_of(section, from) {
                    Ok(slots) => self.slots = Some(slots),
                    Err(status) => return Err(self.pass_lost(section, status)),
                }
                continue;
            };
            let Some(slot) = slots.front().copied() else {
                self.pass((section + 1, 0));
                self.slots = None;
                continue;
            };
            let grain = match self.grain_at(section, slot) {
                Ok(Some(grain)) => grain,
                Ok(None) => {
                    self.pass_slot(section, slot);
                    continue;
                }
                Err(status) => return Err(self.pass_lost(section, status)),
            };
            let pair = core.read_pair(grain, Purpose::Cursor);
            // Moved, or replaced and released, while it was read: check again.
            match self.grain_at(section, slot) {
                Ok(still) if still == Some(grain) => {}
                Ok(_) => continue,
                Err(status) => return Err(self.pass_lost(section, status)),
            }
            self.pass_slot(section, slot);
            return pair.map(Some);
        }
    }

    fn pass(&self, position: (u64, u32)) {
        self.core.drop_released(self.core.snapshots.pass(&self.snapshot, position));
    }

    /// Skips a section that cannot be read, so its pairs are unknown. Returns the status.
    fn pass_lost(&mut self, section: u64, status: Status) -> Status {
        if status != Status::COMMAND_INTERRUPTED {
            self.pass((section + 1, 0));
            self.slots = None;
        }
        status
    }

    fn pass_slot(&mut self, section: u64, slot: u32) {
        self.slots.as_mut().and_then(VecDeque::pop_front);
        self.pass((section, slot + 1));
    }

    /// Slots from `from` on that have or had pairs.
    fn slots_of(&self, section: u64, from: u32) -> Result<VecDeque<u32>, Status> {
        let mut slots = Vec::new();
        if self.core.cache.exists(section) {
            let pin = self.core.cache.fetch(section, Purpose::Cursor)?;
            pin.pairs(&mut |slot, _| {
                if slot >= from {
                    slots.push(slot);
                }
            });
        }
        self.snapshot.changed_slots(section, &mut slots);
        slots.sort_unstable();
        Ok(slots.into())
    }

    /// The pair that a slot had.
    fn grain_at(&self, section: u64, slot: u32) -> Result<Option<super::layout::Grain>, Status> {
        if let Some(before) = self.snapshot.before((section, slot)) {
            return Ok(before);
        }
        let pin = self.core.cache.fetch(section, Purpose::Cursor)?;
        // The slot may have changed while its section was read.
        if let Some(before) = self.snapshot.before((section, slot)) {
            return Ok(before);
        }
        Ok(match pin.get(slot) {
            Entry::At(grain) => Some(grain),
            _ => None,
        })
    }
}
