//! Policy `whole`: each level is one sorted run, and a level that is full is merged whole into the next one (PinK,
//! USENIX ATC'20).
//!
//! Level 0 has the table that was flushed last, for the moment until it is merged into level 1: the design has no such
//! level, because its firmware merges the memtable itself. Level i holds `rings[i - 1]` memtables of entries; the last
//! level has no limit.

use super::{CompactionPolicy, CompactionShape, CompactionStep, LevelsView, Merge};

/// The policy.
pub struct Whole {
    /// Most entries of level 1 and those after it, without the last.
    limits: Vec<u64>,
}

impl Whole {
    pub(super) fn new(shape: &CompactionShape) -> Whole {
        let limit = |ring: &u32| u64::from(*ring) * u64::from(shape.memtable_entries);
        let limited = shape.rings.len().saturating_sub(1);
        Whole { limits: shape.rings[..limited].iter().map(limit).collect() }
    }

    /// Entries that a level may hold.
    fn limit(&self, level: usize) -> u64 {
        match level.checked_sub(1) {
            None => 0,
            Some(at) => self.limits.get(at).copied().unwrap_or(u64::MAX),
        }
    }
}

impl CompactionPolicy for Whole {
    fn levels(&self) -> usize {
        self.limits.len() + 2
    }

    fn partitioned(&self, level: usize) -> bool {
        level > 0
    }

    fn choose(&self, view: &LevelsView) -> CompactionStep {
        let full = (0..self.levels() - 1).find(|level| {
            let tables = &view.levels[*level];
            tables.iter().map(|table| u64::from(table.entries)).sum::<u64>() > self.limit(*level)
        });
        let Some(level) = full else { return CompactionStep::Rest };
        let inputs = || view.levels[level].iter().chain(&view.levels[level + 1]);
        // A table that cannot be read is not merged: its level and the one above stay as they are.
        if inputs().any(|table| table.damaged) {
            return CompactionStep::Rest;
        }
        let ids: Vec<_> = inputs().map(|table| table.id).collect();
        match ids[..] {
            [table] => CompactionStep::Move { table, to: level + 1 },
            _ => CompactionStep::Merge(Merge { inputs: ids, to: level + 1, split_entries: None }),
        }
    }

    fn bottom(&self, entries: u64) -> (usize, Option<u32>) {
        let level = (1..self.levels()).find(|level| entries <= self.limit(*level));
        (level.expect("the last level has no limit"), None)
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_nvme::Key;

    use super::super::TableView;
    use super::*;
    use crate::lsm::entry::TableId;

    fn table(id: u32, entries: u32) -> TableView {
        let (min, max) = (Key::from_u32_be(0), Key::from_u32_be(u32::MAX));
        TableView { id: TableId(id), entries, min, max, damaged: false }
    }

    /// Entries by level, and merged entries, after `flushes` memtables of 100 new keys.
    fn after(flushes: u32) -> (Vec<u32>, u64) {
        let policy = Whole::new(&CompactionShape { memtable_entries: 100, rings: vec![4, 16, 9999] });
        let mut view = LevelsView { levels: vec![Vec::new(); policy.levels()] };
        let (mut next_id, mut merged) = (0, 0);
        for _ in 0..flushes {
            next_id += 1;
            view.levels[0].push(table(next_id, 100));
            loop {
                let (inputs, to) = match policy.choose(&view) {
                    CompactionStep::Rest => break,
                    CompactionStep::Move { table, to } => (vec![table], to),
                    CompactionStep::Merge(merge) => (merge.inputs, merge.to),
                };
                let mut entries = 0;
                for tables in &mut view.levels {
                    tables.retain(|table| {
                        let is_input = inputs.contains(&table.id);
                        entries += if is_input { table.entries } else { 0 };
                        !is_input
                    });
                }
                if inputs.len() > 1 {
                    merged += u64::from(entries);
                }
                next_id += 1;
                view.levels[to].push(table(next_id, entries));
            }
        }
        let sums = view.levels.iter().map(|tables| tables.iter().map(|table| table.entries).sum());
        (sums.collect(), merged)
    }

    #[test]
    fn a_full_level_goes_whole_into_the_next_one() {
        assert_eq!(after(1).0, [0, 100, 0, 0]);
        assert_eq!(after(4).0, [0, 400, 0, 0]);
        // The fifth one makes level 1 too large: it moves as a whole.
        assert_eq!(after(5).0, [0, 0, 500, 0]);
        assert_eq!(after(15).0, [0, 0, 1500, 0]);
        assert_eq!(after(20).0, [0, 0, 0, 2000]);
        assert_eq!(after(47).0, [0, 200, 500, 4000]);
        // Each five memtables cost 200 + 300 + 400 + 500 entries on level 1.
        assert_eq!(after(5).1, 1400);
        assert_eq!(after(10).1, 2 * 1400 + 1000);
    }

    #[test]
    fn nothing_is_merged_with_a_damaged_table() {
        let policy = Whole::new(&CompactionShape { memtable_entries: 100, rings: vec![4, 16, 9999] });
        let mut view = LevelsView { levels: vec![vec![table(1, 100)], vec![table(2, 100)], vec![], vec![]] };
        assert!(matches!(policy.choose(&view), CompactionStep::Merge(_)));
        view.levels[1][0].damaged = true;
        assert_eq!(policy.choose(&view), CompactionStep::Rest);
        assert_eq!(policy.bottom(400), (1, None));
        assert_eq!(policy.bottom(1_000_000), (3, None));
    }
}
