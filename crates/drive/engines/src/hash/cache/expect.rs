//! Prefetching for commands that will come soon. Nothing in the drive changes. Directory, cache and medium of a large
//! drive are larger than the caches of the machine, and the machine can load many memory locations at once in the time
//! of one. The bytes read go to [`black_box`], so that the compiler keeps the reads.

use std::hint::black_box;
use std::rc::Rc;

use super::{CACHED, Cache, NEVER};
use crate::hash::layout::Grain;
use crate::hash::layout::Location;
use crate::hash::section::{Probe, Section};

/// The present place of a section.
enum Lying<'a> {
    Cached(&'a dyn Section),
    /// In the memory of the medium.
    OnFlash(&'a Rc<[u8]>),
}

impl Cache {
    /// Prefetches the sections of these probes, and those that will be evicted for them.
    pub fn expect(&self, probes: impl Iterator<Item = Probe>) {
        self.meet(probes, &mut |_, _| ());
    }

    /// [`Cache::expect`]. Returns the pairs to which the probes lead, for prefetching only: no other
    /// behaviour may depend on them.
    pub fn expect_pairs(&self, probes: impl Iterator<Item = Probe>) -> Vec<Grain> {
        let mut pairs = Vec::with_capacity(32);
        let mut read = self.format.create();
        self.meet(probes, &mut |tag, lying| {
            let section = match lying {
                Lying::Cached(section) => section,
                Lying::OnFlash(bytes) if read.load(bytes.clone()) => &*read,
                Lying::OnFlash(_) => return,
            };
            pairs.extend(section.candidate(tag, 0, &mut 0).map(|(_, pair)| pair));
        });
        pairs
    }

    /// Location of a section that would have to be read from flash.
    pub fn place_on_flash(&self, section: u64) -> Option<Location> {
        let word = self.directory.borrow()[section as usize];
        (word != NEVER && word & CACHED == 0).then(|| Location::of_word(word))
    }

    /// The first pair to which a probe leads, from the machine's memory, without any change. Only for
    /// [`crate::hash::ahead`], where model time depends on it. `None`: no pair, or its section is being read.
    pub fn peek_pair(&self, Probe { section: id, tag }: Probe) -> Option<Grain> {
        let first = |section: &dyn Section| section.candidate(tag, 0, &mut 0).map(|(_, pair)| pair);
        let Some(Location { grain, grains }) = self.place_on_flash(id) else {
            return self.cached(id, first).flatten();
        };
        let layout = &self.space.layout;
        let at = layout.byte_in_page(grain);
        let on_flash = || self.space.peek(layout.page(grain), at, grains * layout.grain_bytes);
        let newer = self.left_clean.borrow().get(&id).cloned();
        let bytes = newer.or_else(|| Some(on_flash()?.item(at, grains * layout.grain_bytes)))?;
        let mut section = self.format.create();
        section.load(bytes).then(|| first(&*section)).flatten()
    }

    /// The result of `look` on a section that is in the cache.
    fn cached<T>(&self, section: u64, look: impl FnOnce(&dyn Section) -> T) -> Option<T> {
        let word = self.directory.borrow()[section as usize];
        let slots = self.slots.borrow();
        let slot = (word != NEVER).then(|| &slots[(word & !CACHED) as usize])?;
        slot.section.as_deref().map(look)
    }

    /// Prefetches the directory entries of these sections.
    pub fn expect_location(&self, sections: impl Iterator<Item = u64>) {
        sections.for_each(|id| _ = black_box(self.location(id)));
    }

    /// Calls `found` with the tag of each probe whose section is in the machine's memory, and that section.
    fn meet(&self, probes: impl Iterator<Item = Probe>, found: &mut dyn FnMut(u32, Lying<'_>)) {
        let (directory, slots) = (self.directory.borrow(), self.slots.borrow());
        let mut coming = Vec::with_capacity(32);
        let mut tags = Vec::with_capacity(32);
        for Probe { section, tag } in probes {
            match directory[section as usize] {
                NEVER => {}
                word if word & CACHED != 0 => {
                    let section = slots[(word & !CACHED) as usize].section.as_deref();
                    section.into_iter().for_each(|section| found(tag, Lying::Cached(section)));
                }
                word => {
                    coming.push(Location::of_word(word).grain);
                    tags.push(tag);
                }
            }
        }
        self.space.expect(&coming, &mut |index, bytes| found(tags[index], Lying::OnFlash(bytes)));
        let residents = self.residents.borrow();
        let leaving = || residents.next(coming.len()).map(|slot| &slots[slot as usize]);
        for slot in leaving() {
            slot.section.iter().for_each(|section| section.meet());
            black_box(directory[slot.id as usize]);
        }
        self.space.expect_invalid(leaving().filter_map(|slot| slot.location).map(|location| location.grain));
    }
}
