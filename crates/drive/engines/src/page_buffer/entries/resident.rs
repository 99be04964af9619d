//! Which page is in which entry: a flat table by logical page. A retrieve that loads a page makes two lookups and two
//! changes here; with a search tree of a few hundred pages these would be a twelfth of its cost.
//!
//! The table has 4 B for each page up to the highest that was in the buffer; the system allocates memory only for parts
//! that are used.

use std::ops::Range;

/// The table.
#[derive(Default)]
pub(super) struct Resident {
    /// Entry + 1 by page; 0: not in the buffer.
    by_lpa: Vec<u32>,
}

impl Resident {
    /// The entry of page `lpa`.
    #[inline]
    pub fn find(&self, lpa: u32) -> Option<u32> {
        self.by_lpa.get(lpa as usize)?.checked_sub(1)
    }

    /// Page `lpa` is in entry `slot` now; returns where it was before.
    pub fn insert(&mut self, lpa: u32, slot: u32) -> Option<u32> {
        let index = lpa as usize;
        if index >= self.by_lpa.len() {
            // Zeros that the system gives: a table that is grown in place would be written from end to end.
            let mut grown = vec![0; (index + 1).next_power_of_two()];
            grown[..self.by_lpa.len()].copy_from_slice(&self.by_lpa);
            self.by_lpa = grown;
        }
        std::mem::replace(&mut self.by_lpa[index], slot + 1).checked_sub(1)
    }

    /// Page `lpa` is in no entry any more; returns where it was.
    pub fn remove(&mut self, lpa: u32) -> Option<u32> {
        std::mem::take(self.by_lpa.get_mut(lpa as usize)?).checked_sub(1)
    }

    /// The entries of the pages in `lpas`, ascending by page.
    pub fn within(&self, lpas: Range<u32>) -> impl Iterator<Item = u32> {
        let end = (lpas.end as usize).min(self.by_lpa.len());
        self.by_lpa[(lpas.start as usize).min(end)..end].iter().filter_map(|entry| entry.checked_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_where_it_was_put_until_it_is_removed() {
        let mut resident = Resident::default();
        assert_eq!((resident.find(0), resident.find(u32::MAX), resident.remove(7)), (None, None, None));
        assert_eq!(resident.within(3..9).count(), 0);
        for (lpa, slot) in [(1000, 0), (5, 3), (0, 2)] {
            assert_eq!(resident.insert(lpa, slot), None);
        }
        assert_eq!(resident.insert(5, 4), Some(3));
        assert_eq!(resident.within(0..1001).collect::<Vec<_>>(), [2, 4, 0]);
        assert_eq!(resident.within(1..1000).collect::<Vec<_>>(), [4]);
        assert_eq!(resident.within(2000..4000).count(), 0);
        assert_eq!((resident.remove(5), resident.remove(5), resident.find(5)), (Some(4), None, None));
        assert_eq!((resident.find(0), resident.find(1000)), (Some(2), Some(0)));
    }
}
