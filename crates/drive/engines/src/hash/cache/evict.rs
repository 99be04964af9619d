//! Eviction: which sections leave the cache for others, and writing those that were altered.

use super::{Cache, NEVER, SPARE_SECTIONS};
use crate::firmware::Cores;
use crate::hash::change::Change;
use crate::hash::layout::Location;
use crate::hash::space::{Content, Stream};
use kvdrive_sim::Ns;

/// Rules of eviction.
pub(in crate::hash) struct Eviction {
    /// Do sections that a command used stay for one more round?
    pub second_chance: bool,
    /// [`HashConfig::cache_ways`](crate::hash::HashConfig::cache_ways).
    pub ways: u32,
    /// [`crate::hash::config::Omissions::wait_for_eviction`].
    pub waits: bool,
    /// [`crate::hash::config::Omissions::gc_leaves_clean`].
    pub gc_leaves_clean: bool,
    /// The cores that write altered sections.
    pub cores: Cores,
    /// Time of writing one section, ns.
    pub write_ns: Ns,
    /// Firmware time of reading one section, ns.
    pub fetch_ns: Ns,
}

impl Cache {
    /// Evicts sections until `bytes` more fit, for section `id`; of its set first, where there are sets, and else the
    /// oldest first. Returns the page of sections that this filled, if any.
    pub(super) fn make_room(&self, id: u64, bytes: u64) -> Option<u32> {
        let _of_others = self.space.take_begun_map_page();
        if self.eviction.ways > 0 {
            self.make_place(id);
        }
        // One round, or two: the first round may only use up second chances.
        let mut tries = self.residents.borrow().count() * if self.eviction.second_chance { 2 } else { 1 };
        while self.bytes.get() + bytes > self.budget_bytes() && tries > 0 {
            tries -= 1;
            let Some(slot) = self.residents.borrow_mut().take_next() else { break };
            if !self.evict(slot) {
                let id = self.slots.borrow()[slot as usize].id;
                self.residents.borrow_mut().enter(id, slot);
            }
        }
        self.space.take_begun_map_page()
    }

    /// Evicts other sections of the set of section `id` until that has a place for it, the oldest first.
    pub(super) fn make_place(&self, id: u64) {
        let (rivals, mut leave) = self.residents.borrow().rivals(id, self.places());
        let rounds = if self.eviction.second_chance { 2 } else { 1 };
        let mut gone = vec![false; rivals.len()];
        for _ in 0..rounds {
            for (slot, is_gone) in rivals.iter().zip(&mut gone) {
                if leave == 0 {
                    return;
                }
                let rival = self.slots.borrow()[*slot as usize].id;
                if !*is_gone && self.evict(*slot) {
                    self.residents.borrow_mut().leave(rival);
                    *is_gone = true;
                    leave -= 1;
                }
            }
        }
    }

    /// How many sections fit into the budget, at the mean size of cached ones.
    fn places(&self) -> u64 {
        let count = self.residents.borrow().count() as u128;
        let places = u128::from(self.budget_bytes()) * count.max(1) / u128::from(self.bytes.get().max(1));
        places.clamp(1, u64::MAX.into()) as u64
    }

    /// Evicts one section. `false` if it is pinned, has a second chance, or cannot be written for lack of
    /// space.
    fn evict(&self, slot: u32) -> bool {
        let (pins, dirty, touched) = {
            let slot = &mut self.slots.borrow_mut()[slot as usize];
            (slot.pins, slot.dirty, std::mem::take(&mut slot.touched) && self.eviction.second_chance)
        };
        if pins > 0 || touched || (dirty && !(self.space.has_map_room() && self.write(slot))) {
            return false;
        }
        let mut slots = self.slots.borrow_mut();
        let leaving = &mut slots[slot as usize];
        let mut section = leaving.section.take().expect("sections in the queue are loaded");
        if leaving.is_left_clean {
            self.left_clean.borrow_mut().insert(leaving.id, section.encode(leaving.id, self.version.get()));
        }
        self.grow(-i64::from(self.charge(&*section)));
        if leaving.location.is_none() {
            self.add_table(-i64::from(section.bytes()));
        }
        self.directory.borrow_mut()[leaving.id as usize] = leaving.location.map_or(NEVER, Location::word);
        self.free.borrow_mut().push(slot);
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_SECTIONS {
            spare.push(section);
        }
        self.count(|s| if dirty { s.evicted_dirty += 1 } else { s.evicted_clean += 1 });
        true
    }

    /// Writes a section; its old copy becomes invalid. `false` if there is no space.
    fn write(&self, slot: u32) -> bool {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[slot as usize];
        let section = slot.section.as_mut().expect("only loaded sections are written");
        let bytes = section.encode(slot.id, self.version.get());
        let count = bytes.len() as u32;
        let Some(grain) = self.space.append(Stream::Map, Content::Item(&bytes), count) else {
            return false;
        };
        self.version.set(self.version.get() + 1);
        match slot.location {
            Some(old) if slot.is_let_go => self.space.invalidate(old.grain, old.grains),
            Some(old) => self.space.forget(old.grain, old.grains),
            None => {}
        }
        (slot.is_let_go, slot.is_left_clean) = (false, false);
        let location = Location { grain, grains: self.space.layout.grains_of(count) };
        slot.location = Some(location);
        self.altered_bytes.set(self.altered_bytes.get() - u64::from(count));
        self.journal.append(&Change::Written { section: slot.id, location: location.word() });
        slot.dirty = false;
        self.count(|s| s.written_bytes += u64::from(count));
        self.owed_ns.set(self.owed_ns.get() + self.eviction.write_ns);
        true
    }

    /// Writes the oldest altered sections until the others take no more than `limit_bytes`; all stay in the
    /// cache. Without space, they wait for the next call; callers that take space make room before. The image
    /// of a drive with more protected memory may have more altered sections than may be written at once: the
    /// others wait for later alterations.
    pub(super) fn write_oldest(&self, limit_bytes: u64) {
        let mut altered = self.altered.borrow_mut();
        while self.altered_bytes.get() > limit_bytes && self.space.has_map_room() {
            let slot = *altered.front().expect("what is altered is in the queue");
            if self.slots.borrow()[slot as usize].dirty && !self.write(slot) {
                return;
            }
            altered.pop_front();
        }
        // Sections that were evicted were written then: now and then, their entries are removed.
        if altered.len() > 2 * self.slots.borrow().len() + 16 {
            altered.clear();
            let slots = self.slots.borrow();
            altered.extend(
                (0..).zip(slots.iter()).filter(|(_, slot)| slot.dirty).map(|(index, _)| index as u32),
            );
        }
    }

    /// Makes room in the power-protected memory for altered sections to grow by `bytes`; it holds until
    /// another task alters a section. `false`: too many pages of sections are being programmed for that, or
    /// there is no space to write to.
    pub fn make_altered_room(&self, bytes: u64) -> bool {
        let limit_bytes = self.altered_limit_bytes.saturating_sub(bytes);
        self.write_oldest(limit_bytes);
        self.altered_bytes.get() <= limit_bytes
    }

    /// Bytes of altered sections at present.
    pub fn altered_bytes(&self) -> u64 {
        self.altered_bytes.get()
    }

    /// Writes every altered section; they stay in the cache.
    pub fn write_all(&self) {
        let count = self.slots.borrow().len() as u32;
        for slot in 0..count {
            let dirty = {
                let slots = self.slots.borrow();
                slots[slot as usize].dirty && slots[slot as usize].section.is_some()
            };
            if dirty {
                self.write(slot);
                self.take_owed();
                self.space.map_room();
            }
        }
    }
}
