//! The ledger of flash pages: how many must be free so that a nearly full drive can continue to work. Arithmetic only:
//! no state, no effects, no waiting.
//!
//! Let U be the pages in tables, A the pages available for new tables, F the pages that a flush of a memtable takes,
//! and M(n) the pages of one run of all tables and n further memtables of new pairs ([`Ledger::merged`]). **A >= M(2),
//! always**: everything, both memtables included, can be merged at any time. A merge takes no more pages than its
//! inputs have, except for new pairs; so after it the same holds, the memtables are empty, and deletes continue.
//! Everything that takes room keeps this invariant:
//!
//! * A flush that would break it is refused: it needs F + M(3) ([`Ledger::to_flush`]).
//! * New pairs take room when they are merged, and as much again to be merged once more. So stores leave enough pages
//!   for a flush now, and for a flush when M(4) of the A + U pages are in use: M(4) covers both memtables and the pairs
//!   of other commands under way ([`Ledger::for_stores`]).
//! * A collection takes a segment before it gives one back; its entries replace others. Stores leave that
//!   segment too ([`super::collection`]).
//!
//! Pages that open iterators hold are not in A.
//!
//! **An example.** A memtable has 100 entries, and a table of n entries takes at most n / 100 + 1 pages, so F = 2.
//! There is one table of 1 000 entries: U = 11. One run of it and n further memtables has 1 000 + 100 n entries: M(n) =
//! 11 + n. A flush needs F + M(3) = 2 + 14 = 16 pages. Stores leave the larger of two numbers: these 16, and the 24
//! that M(4) + F + M(7) = 15 + 2 + 18 = 35 needs beyond the 11 pages of the table.

/// Pages of the index at one moment.
pub(super) struct Ledger<'a> {
    /// The most pages that a table takes, by its number of entries.
    pub pages_at_most: &'a dyn Fn(u32) -> u32,
    /// By the number of entries in a run: entries of each of its tables, or `None` if the run is one table.
    pub split_entries: &'a dyn Fn(u64) -> Option<u32>,
    /// Entries of a memtable.
    pub memtable_entries: u32,
    /// Entries in tables.
    pub table_entries: u64,
    /// Pages they lie on: U.
    pub table_pages: u32,
    /// A table cannot be read completely, so everything cannot be merged into one run.
    pub is_damaged: bool,
}

impl Ledger<'_> {
    /// Pages that a flush takes at most: F.
    pub fn flush(&self) -> u32 {
        (self.pages_at_most)(self.memtable_entries)
    }

    /// The most pages that one run takes of everything in tables and `memtables` further full memtables: M(n).
    pub fn merged(&self, memtables: u32) -> u32 {
        let entries = self.table_entries + u64::from(memtables) * u64::from(self.memtable_entries);
        let pages = self.table_pages + memtables * self.flush();
        self.run(entries, pages, (self.split_entries)(entries))
    }

    /// Available pages that a flush requires: after it everything and two further memtables can still be merged.
    pub fn to_flush(&self) -> u32 {
        self.flush() + if self.is_damaged { 0 } else { self.merged(3) }
    }

    /// Available pages that stores must leave: for a flush now, and for a flush after four memtables of new pairs have
    /// been merged with everything.
    pub fn for_stores(&self) -> u32 {
        let to_flush_after = |memtables: u32| self.flush() + self.merged(memtables + 3);
        let later = (self.merged(4) + to_flush_after(4)).saturating_sub(self.table_pages);
        let needed = to_flush_after(0).max(later);
        assert!(needed >= self.to_flush(), "stores leave {needed} pages, a flush needs {}", self.to_flush());
        needed
    }

    /// The most pages that one run of `entries` entries takes, which take `pages` pages now. The lesser of two bounds:
    /// by the number of entries, because the present pages may be nearly empty; and the present pages and an eighth,
    /// because entries may be smaller than the layout's largest (the waste at the ends of pages varies).
    pub fn run(&self, entries: u64, pages: u32, split_entries: Option<u32>) -> u32 {
        let split = u64::from(split_entries.unwrap_or(u32::MAX));
        let table_pages = |entries: u64| u64::from((self.pages_at_most)(entries as u32));
        let by_entries = entries / split * table_pages(split) + table_pages(entries % split);
        by_entries.min(u64::from(pages + pages / 8)) as u32
    }

    /// After a flush or a merge.
    ///
    /// # Panics
    /// If everything could not be merged with `available` pages and the `held` ones that iterators hold.
    pub fn check(&self, available: u32, held: u32) {
        let needed = self.merged(2);
        assert!(
            self.is_damaged || available.saturating_add(held) >= needed,
            "{available} pages are available and {held} held, {needed} are needed to merge everything"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_example() -> Ledger<'static> {
        Ledger {
            pages_at_most: &|entries| entries.div_ceil(100) + 1,
            split_entries: &|_| None,
            memtable_entries: 100,
            table_entries: 1_000,
            table_pages: 11,
            is_damaged: false,
        }
    }

    /// The example above.
    #[test]
    fn a_ledger_adds_up_as_its_example_says() {
        let ledger = of_example();
        assert_eq!((ledger.flush(), ledger.merged(0), ledger.merged(3)), (2, 11, 14));
        assert_eq!((ledger.to_flush(), ledger.for_stores()), (16, 24));
        ledger.check(13, 0);
        ledger.check(3, 10);
        // A damaged table cannot be merged: only the flush itself has to fit.
        let damaged = Ledger { is_damaged: true, ..ledger };
        assert_eq!(damaged.to_flush(), 2);
        damaged.check(0, 0);
    }

    #[test]
    #[should_panic(expected = "12 pages are available and 0 held, 13 are needed")]
    fn too_few_pages_to_merge_everything_are_a_broken_invariant() {
        of_example().check(12, 0);
    }

    /// A run of nearly empty tables is bounded by its entries; a run of small entries by its present pages and an
    /// eighth.
    #[test]
    fn a_run_takes_the_lesser_of_what_its_entries_and_its_pages_say() {
        let ledger =
            Ledger { split_entries: &|_| Some(200), table_entries: 0, table_pages: 0, ..of_example() };
        assert_eq!(ledger.run(450, 1_000, Some(200)), 2 * 3 + 2);
        assert_eq!(ledger.run(450, 4, Some(200)), 4);
        assert_eq!(ledger.run(45_000, 400, None), 450);
    }
}
