//! Recovery of the cache: the state that goes into the protected image, and how it is restored.

use super::{Cache, NEVER};
use crate::hash::layout::{Grain, Location};
use crate::hash::section::Section;

impl Cache {
    /// Every altered section: its number and bytes.
    pub(in crate::hash) fn dirty(&self, found: &mut dyn FnMut(u64, &[u8])) {
        self.left_clean.borrow().iter().for_each(|(id, bytes)| found(*id, bytes));
        let mut slots = self.slots.borrow_mut();
        for slot in slots.iter_mut().filter(|slot| slot.dirty || slot.is_left_clean) {
            let Some(section) = &mut slot.section else { continue };
            found(slot.id, &section.encode(slot.id, self.version.get()));
        }
    }

    /// Location of every section's copy on flash: [`Location::word`], 0 for none.
    pub(in crate::hash) fn locations(&self) -> Vec<u64> {
        (0..self.sections()).map(|id| self.location(id).map_or(NEVER, Location::word)).collect()
    }

    /// Calls `found` with the pairs of every altered section.
    pub(in crate::hash) fn dirty_pairs(&self, found: &mut dyn FnMut(Grain)) {
        let slots = self.slots.borrow();
        for section in slots.iter().filter(|slot| slot.dirty).filter_map(|slot| slot.section.as_ref()) {
            section.pairs(&mut |_, grain| found(grain));
        }
    }

    /// Is the copy at `location` the present state of the section?
    pub(in crate::hash) fn is_as_at(&self, id: u64, location: Location) -> bool {
        self.directory.borrow().get(id as usize).is_some_and(|word| *word == location.word())
    }

    /// Version number for the next section that is written.
    pub(in crate::hash) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Enters a section that was found on flash.
    pub(in crate::hash) fn restore_directory(&self, id: u64, location: Location) {
        self.directory.borrow_mut()[id as usize] = location.word();
        self.add_table(i64::from(location.grains * self.space.layout.grain_bytes));
    }

    /// Sets the next version number.
    pub(in crate::hash) fn restore_version(&self, version: u64) {
        self.version.set(version);
    }

    /// Restores an altered section.
    pub(in crate::hash) fn restore_dirty(&self, id: u64, section: Box<dyn Section>) {
        let location = self.location(id);
        let known = location.map_or(0, |location| location.grains * self.space.layout.grain_bytes);
        self.add_table(i64::from(section.bytes()) - i64::from(known));
        let slot = self.insert(id, Some(section), location);
        self.slots.borrow_mut()[slot as usize].dirty = true;
        let bytes = self.slots.borrow()[slot as usize].section.as_ref().map_or(0, |section| section.bytes());
        self.altered_bytes.set(self.altered_bytes.get() + u64::from(bytes));
        self.altered.borrow_mut().push_back(slot);
        self.enqueue(slot);
    }
}
