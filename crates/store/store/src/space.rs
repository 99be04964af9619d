//! Free pages as runs, indexed by position and by length.

use std::collections::{BTreeMap, BTreeSet};

use borsh::{BorshDeserialize, BorshSerialize};

use crate::pages::PageId;

/// Consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub struct Extent {
    /// The first one.
    pub first: PageId,
    /// Number of pages.
    pub pages: u32,
}

impl Extent {
    /// The page after the last one.
    pub fn end(&self) -> u64 {
        self.first.0 + u64::from(self.pages)
    }
}

/// The set of free pages.
#[derive(Default)]
pub struct FreePages {
    by_first: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    pages: u64,
}

impl FreePages {
    /// Number of free pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Takes the shortest run of at least `pages` pages, or, if there is none, the longest run.
    pub fn take(&mut self, pages: u32) -> Option<Extent> {
        let wanted = u64::from(pages);
        let fitting = self.by_length.range((wanted, 0)..).next();
        let (length, first) = *fitting.or_else(|| self.by_length.last())?;
        self.remove(first, length);
        let taken = length.min(wanted);
        if length > taken {
            self.insert(first + taken, length - taken);
        }
        Some(Extent { first: PageId(first), pages: taken as u32 })
    }

    /// Takes `pages` pages in at most `runs` runs, or none.
    pub fn take_runs(&mut self, pages: u32, runs: usize) -> Option<Vec<Extent>> {
        let mut taken: Vec<Extent> = Vec::new();
        let mut missing = pages;
        while missing > 0 {
            let run = if taken.len() < runs { self.take(missing) } else { None };
            let Some(run) = run else {
                taken.into_iter().for_each(|run| self.give(run));
                return None;
            };
            missing -= run.pages;
            taken.push(run);
        }
        Some(taken)
    }

    /// Takes these pages; `false` if not all of them are free.
    pub fn claim(&mut self, extent: Extent) -> bool {
        let first = extent.first.0;
        let Some((&start, &length)) = self.by_first.range(..=first).next_back() else { return false };
        let Some(end) = first.checked_add(extent.pages.into()) else { return false };
        if end > start + length {
            return false;
        }
        self.remove(start, length);
        if first > start {
            self.insert(start, first - start);
        }
        if start + length > end {
            self.insert(end, start + length - end);
        }
        true
    }

    /// Returns pages to the set.
    pub fn give(&mut self, extent: Extent) {
        let (mut first, mut length) = (extent.first.0, u64::from(extent.pages));
        if length == 0 {
            return;
        }
        if let Some((&before, &its)) = self.by_first.range(..first).next_back() {
            assert!(before + its <= first, "page {first} is given back and is free");
            if before + its == first {
                self.remove(before, its);
                (first, length) = (before, its + length);
            }
        }
        if let Some((&after, &its)) = self.by_first.range(first..).next() {
            assert!(first + length <= after, "page {after} is given back and is free");
            if first + length == after {
                self.remove(after, its);
                length += its;
            }
        }
        self.insert(first, length);
    }

    fn insert(&mut self, first: u64, length: u64) {
        self.by_first.insert(first, length);
        self.by_length.insert((length, first));
        self.pages += length;
    }

    fn remove(&mut self, first: u64, length: u64) {
        self.by_first.remove(&first);
        self.by_length.remove(&(length, first));
        self.pages -= length;
    }
}
