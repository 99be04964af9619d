//! What will be asked for soon. Nothing of the drive changes by it: directory, cache and medium of a large
//! drive are larger than the caches of the machine it runs on, and the machine meets many places of its
//! memory in the time of one. What is looked at goes to [`black_box`], so that it is really looked at.

use std::hint::black_box;
use std::rc::Rc;

use super::{CACHED, Cache, NEVER};
use crate::hash::layout::Grain;
use crate::hash::layout::Location;
use crate::hash::section::{Probe, Section};

/// A section, where it lies now.
enum Lying<'a> {
    Cached(&'a dyn Section),
    /// In the memory of the medium.
    OnFlash(&'a Rc<[u8]>),
}

impl Cache {
    /// The sections of these probes will be fetched soon, and others leave for them.
    pub fn expect(&self, probes: impl Iterator<Item = Probe>) {
        self.meet(probes, &mut |_, _| ());
    }

    /// [`Cache::expect`]. Returns pairs that the probes lead to: they are to be expected as well, and nothing
    /// else may follow from them.
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

    /// Somebody will ask soon where the copies of these sections are.
    pub fn expect_location(&self, sections: impl Iterator<Item = u64>) {
        sections.for_each(|id| _ = black_box(self.location(id)));
    }

    /// Calls `found` with the tag of each probe whose section lies in the machine's memory, and that section.
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
        let fifo = self.fifo.borrow();
        let leaving = || fifo.iter().take(coming.len()).map(|slot| &slots[*slot as usize]);
        for slot in leaving() {
            slot.section.iter().for_each(|section| section.meet());
            black_box(directory[slot.id as usize]);
        }
        self.space.expect_invalid(leaving().filter_map(|slot| slot.location).map(|location| location.grain));
    }
}
