//! Policy `leveled`: level 0 holds flushed tables; every deeper level is one run of tables with disjoint key ranges,
//! and holds ten times as many entries as the level above (LevelDB, RocksDB).
//!
//! Four tables on level 0 are merged together into level 1. A deeper level that is too large merges one table into the
//! level below: the table with the fewest overlapping entries there for each entry of its own. A table without overlap
//! is moved without rewriting.

use super::{CompactionPolicy, CompactionShape, CompactionStep, LevelsView, Merge, TableView};

/// Tables on level 0 that are merged (RocksDB's `level0_file_num_compaction_trigger`).
const TRIGGER_TABLES: usize = 4;
/// Growth from level to level.
const RATIO: u64 = 10;
/// Enough for 1.6 G entries with memtables of 4096; the last level has no limit.
const LEVELS: usize = 7;

/// The policy.
pub struct Leveled {
    table_entries: u32,
}

impl Leveled {
    pub(super) fn new(shape: &CompactionShape) -> Leveled {
        Leveled { table_entries: shape.memtable_entries.max(1) }
    }

    /// Entries that level `level` (1 or deeper) may hold.
    fn limit(&self, level: usize) -> u64 {
        if level == LEVELS - 1 {
            return u64::MAX;
        }
        let first = TRIGGER_TABLES as u64 * u64::from(self.table_entries);
        first * RATIO.pow(level as u32 - 1)
    }

    /// Merges `upper` with the tables that overlap it on level `to`.
    fn merge(&self, upper: &[&TableView], lower: &[TableView], to: usize) -> CompactionStep {
        let min = upper.iter().map(|table| table.min).min();
        let max = upper.iter().map(|table| table.max).max();
        let (Some(min), Some(max)) = (min, max) else { return CompactionStep::Rest };
        let inputs =
            || upper.iter().copied().chain(lower.iter().filter(|table| table.min <= max && min <= table.max));
        if inputs().any(|table| table.damaged) {
            return CompactionStep::Rest;
        }
        let inputs: Vec<_> = inputs().map(|table| table.id).collect();
        match inputs[..] {
            [table] => CompactionStep::Move { table, to },
            _ => CompactionStep::Merge(Merge { inputs, to, split_entries: Some(self.table_entries) }),
        }
    }

    /// The table of `upper` that costs the least to push down, if any can be.
    fn cheapest<'a>(upper: &'a [TableView], lower: &[TableView]) -> Option<&'a TableView> {
        let cost = |table: &TableView| -> Option<u64> {
            // Lost tables, which have no entries, come before the sorted ones.
            let (lost, sorted) = lower.split_at(lower.iter().take_while(|below| below.entries == 0).count());
            let first = sorted.partition_point(|below| below.max < table.min);
            let overlapping = sorted[first..].iter().take_while(|below| below.min <= table.max);
            if lost.iter().any(|lost| lost.min <= table.max && table.min <= lost.max) {
                return None;
            }
            let mut entries = 0;
            for below in overlapping {
                if below.damaged {
                    return None;
                }
                entries += u64::from(below.entries);
            }
            Some((entries << 10) / u64::from(table.entries.max(1)))
        };
        upper
            .iter()
            .filter(|table| !table.damaged)
            .filter_map(|table| Some((cost(table)?, table.id, table)))
            .min_by_key(|(cost, id, _)| (*cost, *id))
            .map(|(_, _, table)| table)
    }
}

impl CompactionPolicy for Leveled {
    fn levels(&self) -> usize {
        LEVELS
    }

    fn partitioned(&self, level: usize) -> bool {
        level > 0
    }

    fn choose(&self, view: &LevelsView) -> CompactionStep {
        for level in (1..LEVELS - 1).rev() {
            let (upper, lower) = (&view.levels[level], &view.levels[level + 1]);
            let entries: u64 = upper.iter().map(|table| u64::from(table.entries)).sum();
            // A lost table (damaged, any key between its bounds may be in it) on the next level forbids merges there.
            if entries > self.limit(level)
                && let Some(table) = Leveled::cheapest(upper, lower)
            {
                match self.merge(&[table], lower, level + 1) {
                    CompactionStep::Rest => {}
                    choice => return choice,
                }
            }
        }
        if view.levels[0].len() >= TRIGGER_TABLES {
            let upper: Vec<_> = view.levels[0].iter().collect();
            return self.merge(&upper, &view.levels[1], 1);
        }
        CompactionStep::Rest
    }

    fn bottom(&self, entries: u64) -> (usize, Option<u32>) {
        let level = (1..LEVELS).find(|level| entries <= self.limit(*level)).unwrap_or(LEVELS - 1);
        (level, Some(self.table_entries))
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_nvme::Key;

    use super::*;
    use crate::lsm::entry::TableId;

    fn table(id: u32, entries: u32, min: u32, max: u32) -> TableView {
        let (min, max) = (Key::from_u32_be(min), Key::from_u32_be(max));
        TableView { id: TableId(id), entries, min, max, damaged: false }
    }

    fn policy() -> Leveled {
        Leveled::new(&CompactionShape { memtable_entries: 100, rings: Vec::new() })
    }

    fn view(levels: &[&[TableView]]) -> LevelsView {
        let mut levels: Vec<_> = levels.iter().map(|level| level.to_vec()).collect();
        levels.resize(LEVELS, Vec::new());
        LevelsView { levels }
    }

    #[test]
    fn level_0_goes_down_together_with_what_it_overlaps() {
        let upper = [table(5, 100, 0, 50), table(6, 100, 20, 60), table(7, 100, 0, 9)];
        assert_eq!(policy().choose(&view(&[&upper])), CompactionStep::Rest);
        let upper = [&upper[..], &[table(8, 100, 30, 40)]].concat();
        let lower = [table(1, 100, 0, 10), table(2, 100, 55, 70), table(3, 100, 80, 90)];
        let inputs = [5, 6, 7, 8, 1, 2].map(TableId).to_vec();
        let merge = Merge { inputs, to: 1, split_entries: Some(100) };
        assert_eq!(policy().choose(&view(&[&upper, &lower])), CompactionStep::Merge(merge));
    }

    #[test]
    fn a_full_level_gives_its_cheapest_table_and_moves_it_if_nothing_is_below() {
        let upper: Vec<_> = (0..5).map(|n| table(10 + n, 100, n * 10, n * 10 + 9)).collect();
        let lower = [table(1, 100, 0, 9), table(2, 60, 10, 29), table(3, 100, 30, 39), table(4, 100, 40, 49)];
        let merge = Merge { inputs: vec![TableId(11), TableId(2)], to: 2, split_entries: Some(100) };
        assert_eq!(policy().choose(&view(&[&[], &upper, &lower])), CompactionStep::Merge(merge));
        let lower = [table(1, 100, 0, 9), table(2, 60, 10, 19), table(3, 100, 30, 39), table(4, 100, 40, 49)];
        let choice = policy().choose(&view(&[&[], &upper, &lower]));
        assert_eq!(choice, CompactionStep::Move { table: TableId(12), to: 2 });
    }

    #[test]
    fn damaged_tables_stay_where_they_are() {
        let mut upper: Vec<_> = (0..4).map(|n| table(n, 100, 0, 9)).collect();
        upper[1].damaged = true;
        assert_eq!(policy().choose(&view(&[&upper])), CompactionStep::Rest);
    }
}
