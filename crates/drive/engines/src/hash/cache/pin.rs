//! Pins: a section stays in the cache while a task reads or alters it.

use std::borrow::Cow;
use std::rc::Rc;

use super::Cache;
use crate::hash::change::{Alteration, Change};
use crate::hash::layout::{Grain, Location};
use crate::hash::section::{Entry, Outlook, Section};

/// A section that stays in the cache while this is held.
pub struct Pin {
    pub(super) cache: Rc<Cache>,
    pub(super) slot: u32,
}

impl Pin {
    fn section<T>(&self, ask: impl FnOnce(&dyn Section) -> T) -> T {
        let slots = self.cache.slots.borrow();
        ask(&**slots[self.slot as usize].section.as_ref().expect("pinned sections stay"))
    }

    /// What a slot of the section holds.
    pub fn get(&self, slot: u32) -> Entry {
        self.section(|section| section.get(slot, &mut 0))
    }

    /// [`Section::candidate`], and the number of comparisons.
    pub fn candidate(&self, tag: u32, from: u32) -> (Option<(u32, Grain)>, u64) {
        let mut comparisons = 0;
        (self.section(|section| section.candidate(tag, from, &mut comparisons)), comparisons)
    }

    /// The slot that points at this pair, which has this tag.
    pub fn slot_of(&self, tag: u32, grain: Grain) -> Option<u32> {
        let mut from = 0;
        self.section(|section| {
            while let Some((slot, at)) = section.candidate(tag, from, &mut 0) {
                if at == grain {
                    return Some(slot);
                }
                from = slot + 1;
            }
            None
        })
    }

    /// [`Section::outlook`].
    pub fn outlook(&self, tag: u32) -> Outlook {
        self.section(|section| section.outlook(tag))
    }

    /// [`Section::vacancy_besides`].
    pub fn vacancy_besides(&self, tag: u32, is_taken: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.section(|section| section.vacancy_besides(tag, is_taken))
    }

    /// Calls `found` with every pair of the section.
    pub fn pairs(&self, found: &mut dyn FnMut(u32, Grain)) {
        self.section(|section| section.pairs(found));
    }

    /// Sets a slot to a pair.
    pub fn set(&self, slot: u32, tag: u32, grain: Grain) {
        self.alter(Alteration::Set { slot, tag, grain }, false);
    }

    /// As [`Pin::set`], for collection, which has moved the pair.
    pub fn relocate(&self, slot: u32, tag: u32, grain: Grain) {
        self.alter(Alteration::Set { slot, tag, grain }, self.cache.eviction.gc_leaves_clean);
    }

    /// Removes the pair of a slot.
    pub fn remove(&self, slot: u32) {
        self.alter(Alteration::Remove { slot }, false);
    }

    /// Notes that a store probes past a tag. If that is noted already, nothing is altered: otherwise every
    /// store with a long probe sequence would write all of its sections.
    pub fn mark_passed(&self, tag: u32) {
        if self.section(|section| section.is_passed(tag)) {
            return;
        }
        self.alter(Alteration::MarkPassed { tag }, false);
    }

    /// With `leaves_clean`, a section without other alterations will be evicted without being written.
    fn alter(&self, alteration: Alteration, leaves_clean: bool) {
        let mut slots = self.cache.slots.borrow_mut();
        let slot = &mut slots[self.slot as usize];
        let leaves_clean = leaves_clean && !slot.dirty && slot.location.is_some();
        if let (false, false, Some(Location { grain, grains })) = (slot.dirty, leaves_clean, slot.location) {
            // The copy on flash is stale from here on. Once the medium has dropped it, the section is the
            // only owner of its bytes and alters them without copying.
            slot.is_let_go = self.cache.space.let_go(grain, grains);
        }
        self.cache.alterations.set(self.cache.alterations.get() + 1);
        let section = slot.section.as_mut().expect("pinned sections stay");
        let before = (section.cached_bytes(), section.bytes());
        alteration.apply(&mut **section);
        let journal = &self.cache.journal;
        if journal.is_kept() {
            if slot.dirty || slot.is_left_clean {
                journal.append(&Change::Slot { section: slot.id, alteration });
            } else {
                let bytes = section.encode(slot.id, self.cache.version.get());
                journal.append(&Change::Section { bytes: Cow::Borrowed(&bytes) });
            }
        }
        slot.is_left_clean = leaves_clean;
        if leaves_clean {
            assert_eq!(
                before,
                (section.cached_bytes(), section.bytes()),
                "a pair that moved takes no more room"
            );
            return;
        }
        let was = if std::mem::replace(&mut slot.dirty, true) { before.1 } else { 0 };
        let altered = self.cache.altered_bytes.get() - u64::from(was) + u64::from(section.bytes());
        self.cache.altered_bytes.set(altered);
        self.cache.grow(i64::from(section.cached_bytes()) - i64::from(before.0));
        self.cache.add_table(i64::from(section.bytes()) - i64::from(before.1));
        if was == 0 {
            self.cache.altered.borrow_mut().push_back(self.slot);
        }
        let (id, grown_bytes) = (slot.id, section.cached_bytes().saturating_sub(before.0));
        drop(slots);
        if self.cache.eviction.ways > 0 && grown_bytes > 0 {
            // With larger places there are fewer, and its set has more sections.
            self.cache.make_place(id);
        }
        self.cache.write_oldest(self.cache.altered_limit_bytes);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if !self.cache.sim.halted() {
            self.cache.slots.borrow_mut()[self.slot as usize].pins -= 1;
        }
    }
}
