//! The map from logical to physical pages, and the set of valid physical pages.
//!
//! Both tables are flat and zero-initialised, and therefore take memory only where they are touched: 4 B per
//! logical page, one bit per physical page. The reverse map, from a physical page to its logical one, is in
//! the page's spare area.

use crate::Ppa;

/// Logical page address, by which the owner of the FTL addresses pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lpa(pub u32);

/// The map of one drive.
pub(super) struct PageMap {
    /// Physical page + 1 by logical page; 0 is unmapped.
    physical: Vec<u32>,
    /// One bit by physical page.
    valid: Vec<u64>,
}

impl PageMap {
    /// Nothing is mapped.
    pub fn new(logical_pages: u32, physical_pages: u64) -> PageMap {
        PageMap {
            physical: vec![0; logical_pages as usize],
            valid: vec![0; physical_pages.div_ceil(64) as usize],
        }
    }

    /// The physical page of `lpa`.
    pub fn get(&self, lpa: Lpa) -> Option<Ppa> {
        self.physical[lpa.0 as usize].checked_sub(1).map(Ppa)
    }

    /// Does `ppa` hold the content of a logical page?
    pub fn is_valid(&self, ppa: Ppa) -> bool {
        self.valid[ppa.0 as usize / 64] >> (ppa.0 % 64) & 1 == 1
    }

    /// Maps `lpa` to `ppa`, or unmaps it, and returns the page that became invalid.
    pub fn set(&mut self, lpa: Lpa, ppa: Option<Ppa>) -> Option<Ppa> {
        let old = self.get(lpa);
        if let Some(old) = old {
            self.valid[old.0 as usize / 64] &= !(1 << (old.0 % 64));
        }
        if let Some(new) = ppa {
            self.valid[new.0 as usize / 64] |= 1 << (new.0 % 64);
        }
        self.physical[lpa.0 as usize] = ppa.map_or(0, |ppa| ppa.0 + 1);
        old
    }

    /// The logical page at `ppa`, found by a search: for pages whose header is gone.
    pub fn find(&self, ppa: Ppa) -> Option<Lpa> {
        self.physical.iter().position(|entry| *entry == ppa.0 + 1).map(|lpa| Lpa(lpa as u32))
    }
}
