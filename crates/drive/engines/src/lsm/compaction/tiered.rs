//! Policy `tiered`: as in the published firmware of BandSlim.
//!
//! Every level is a ring of overlapping tables. When all places of a ring but one are taken, its two oldest tables are
//! merged into one table of the next level. Deeper levels are checked first. The last level is never merged, so
//! duplicates and tombstones stay there until everything is merged.

use super::{CompactionPolicy, CompactionShape, CompactionStep, LevelsView, Merge};

/// The published policy.
pub struct Tiered {
    rings: Vec<u32>,
    /// Entries of a table of the last level if no key came twice: each level doubles the size.
    last_entries: u32,
}

impl Tiered {
    pub(super) fn new(shape: &CompactionShape) -> Tiered {
        assert!(!shape.rings.is_empty(), "there is at least one level");
        let doublings = shape.rings.len().min(32) as u32 - 1;
        let last_entries = u64::from(shape.memtable_entries) << doublings;
        Tiered { rings: shape.rings.clone(), last_entries: last_entries.min(u32::MAX.into()) as u32 }
    }
}

impl CompactionPolicy for Tiered {
    fn levels(&self) -> usize {
        self.rings.len()
    }

    fn partitioned(&self, _: usize) -> bool {
        false
    }

    fn choose(&self, view: &LevelsView) -> CompactionStep {
        for level in (0..self.rings.len() - 1).rev() {
            let tables = &view.levels[level];
            let full = tables.len() >= 2 && tables.len() as u64 + 1 >= u64::from(self.rings[level]);
            // A damaged table cannot be merged, and merging around it would put newer entries below older
            // ones.
            if full && !tables[..2].iter().any(|table| table.damaged) {
                let inputs = tables[..2].iter().map(|table| table.id).collect();
                return CompactionStep::Merge(Merge { inputs, to: level + 1, split_entries: None });
            }
        }
        CompactionStep::Rest
    }

    fn bottom(&self, _: u64) -> (usize, Option<u32>) {
        // One huge table would be as good for space, but a lookup of the published layout reads whole tables.
        (self.rings.len() - 1, Some(self.last_entries))
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_nvme::Key;

    use super::super::TableView;
    use super::*;
    use crate::lsm::bloom::BloomConfig;
    use crate::lsm::entry::TableId;
    use crate::lsm::layout::{KeyClass, TableShape, layout_row};

    /// Page writes and merges by level for `entries` distinct keys in ascending order.
    fn account(entries: u32, bits_per_key: u32) -> (u64, [u32; 3], Vec<usize>) {
        const MEMTABLE: u32 = 4096;
        let shape = CompactionShape { memtable_entries: MEMTABLE, rings: vec![4, 16, 128, 65537] };
        let policy = Tiered::new(&shape);
        let bloom = BloomConfig { bits_per_key, hashes: 30 };
        let layout = (layout_row("published").unwrap().build)(TableShape { page_bytes: 16384, bloom });
        let mut view = LevelsView { levels: vec![Vec::new(); 4] };
        let (mut writes, mut merges, mut next_id) = (0, [0; 3], 0);
        let mut add = |view: &mut LevelsView, level: usize, entries: u32| {
            writes += u64::from(layout.pages_at_most(entries, KeyClass::default()));
            next_id += 1;
            let (min, max) = (Key::from_u32_be(0), Key::from_u32_be(u32::MAX));
            view.levels[level].push(TableView { id: TableId(next_id), entries, min, max, damaged: false });
        };
        for _ in 0..entries / MEMTABLE {
            add(&mut view, 0, MEMTABLE);
            while let CompactionStep::Merge(merge) = policy.choose(&view) {
                let from = &mut view.levels[merge.to - 1];
                let merged: Vec<_> = from.drain(..2).collect();
                assert_eq!(merge.inputs, [merged[0].id, merged[1].id]);
                merges[merge.to - 1] += 1;
                add(&mut view, merge.to, merged[0].entries + merged[1].entries);
            }
        }
        (writes, merges, view.levels.iter().map(Vec::len).collect())
    }

    /// The numbers follow from the page accounting of the public firmware.
    #[test]
    fn published_page_writes_come_out() {
        assert_eq!(account(1_000_000, 32), (2808, [121, 54, 0], vec![2, 13, 54, 0]));
        assert_eq!(account(10_000_000, 32), (36820, [1220, 603, 239], vec![1, 14, 125, 239]));
        assert_eq!(account(10_000_000, 0).0, 27615);
    }
}
