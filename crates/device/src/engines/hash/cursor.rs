//! Listing in the order of the hash table.
//!
//! A cursor is a place in the table, not a snapshot: it yields every pair that exists from its opening to its end
//! exactly once, and others or not. It begins at the slot of the key it is opened with, or at the slot that key would
//! have; a host that continues from the last key it got meets that key again and then those behind it.

use std::collections::VecDeque;

use kvdrive_spec::{Key, Status};

use super::commands::{Found, HashEngine};
use super::core::{Aim, Walk};
use super::section::{Entry, Probe};
use crate::flash::Purpose;

/// A place in the hash table.
pub struct HashCursor {
    /// Section that is read next.
    section: u64,
    /// Slots of it before this one are not wanted.
    first_slot: u32,
    /// Slots of the present section that held pairs when it was read.
    slots: VecDeque<u32>,
}

impl HashCursor {
    pub(super) async fn open(engine: &HashEngine, from: Option<Key>) -> Result<HashCursor, Status> {
        let core = &*engine.0;
        let (section, first_slot) = match from {
            None => (0, 0),
            Some(key) => match core.walk(&key, Aim::Read).await? {
                Walk::Found(spot, slot, _) => (spot.section, slot),
                Walk::Absent(_) => {
                    let Probe { section, tag } = core.probe(&key, 0);
                    (section, core.cache.format().first_slot(tag))
                }
            },
        };
        Ok(HashCursor { section, first_slot, slots: VecDeque::new() })
    }

    pub(super) async fn next(&mut self, engine: &HashEngine) -> Result<Option<(Key, Found)>, Status> {
        let core = &*engine.0;
        loop {
            while let Some(slot) = self.slots.front().copied() {
                let pin = core.cache.fetch(self.section - 1, Purpose::Cursor).await?;
                let Entry::At(grain) = pin.get(slot) else {
                    self.slots.pop_front();
                    continue;
                };
                let pair = core.read_pair(grain, Purpose::Cursor).await;
                // Moved or replaced while it was read: look again.
                if pin.get(slot) != Entry::At(grain) {
                    continue;
                }
                self.slots.pop_front();
                let pair = pair?;
                return Ok(Some((pair.header.key, engine.found(pair))));
            }
            while self.section < core.cache.sections() && !core.cache.exists(self.section) {
                self.section += 1;
                self.first_slot = 0;
            }
            if self.section == core.cache.sections() {
                return Ok(None);
            }
            let pin = core.cache.fetch(self.section, Purpose::Cursor).await?;
            let first_slot = self.first_slot;
            pin.pairs(&mut |slot, _| {
                if slot >= first_slot {
                    self.slots.push_back(slot);
                }
            });
            self.section += 1;
            self.first_slot = 0;
        }
    }
}
