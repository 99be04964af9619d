//! Policy `neighbours`: each level is one run of tables with disjoint key ranges; the level that is fullest by its limit
//! gives what it has too much, as neighbouring tables at a random place, to the next one (the PinK with which AnyKey,
//! ASPLOS'25, and KVPack compare themselves: a port by AnyKey's authors).
//!
//! It is not PinK, which merges whole levels (policy `whole`): a step is small, so no store waits for a whole level, and
//! tables of a level are merged at different times. As in `whole`, level 0 has the table that was flushed last until it is
//! merged into level 1, and level i holds `rings[i - 1]` memtables of entries; the last level has no limit.

use kvdrive_nvme::Key;

use super::{CompactionPolicy, CompactionShape, CompactionStep, LevelsView, Merge, TableView};

/// The policy.
pub struct Neighbours {
    table_entries: u32,
    /// Most entries of level 1 and those after it, without the last.
    limits: Vec<u64>,
}

impl Neighbours {
    pub(super) fn new(shape: &CompactionShape) -> Neighbours {
        let table_entries = shape.memtable_entries.max(1);
        let limited = shape.rings.len().saturating_sub(1);
        let limit = |ring: &u32| u64::from(*ring) * u64::from(table_entries);
        Neighbours { table_entries, limits: shape.rings[..limited].iter().map(limit).collect() }
    }

    /// Entries that a level may hold; level 0 none.
    fn limit(&self, level: usize) -> u64 {
        match level.checked_sub(1) {
            None => 0,
            Some(at) => self.limits.get(at).copied().unwrap_or(u64::MAX),
        }
    }

    /// Levels that hold more than they may, the fullest by its limit first.
    fn too_full(&self, view: &LevelsView) -> Vec<(usize, u64)> {
        let entries = |level: usize| view.levels[level].iter().map(|table| u64::from(table.entries)).sum();
        let levels = (0..self.levels() - 1).map(|level| (level, entries(level)));
        let mut full: Vec<(usize, u64)> = levels.filter(|(level, has)| *has > self.limit(*level)).collect();
        // Level 0 may have nothing, so it comes first. Fullness is compared without a division.
        full.sort_by(|(one, has_one), (other, has_other)| {
            let product = |has: u64, limit: u64| u128::from(has) * u128::from(limit);
            product(*has_other, self.limit(*one))
                .cmp(&product(*has_one, self.limit(*other)))
                .then(one.cmp(other))
        });
        full
    }

    /// The tables at and behind `first` that have `surplus` entries.
    fn run(tables: &[TableView], first: usize, surplus: u64) -> &[TableView] {
        let mut entries = 0;
        let length = tables[first..].iter().take_while(|table| {
            let is_wanted = entries < surplus;
            entries += u64::from(table.entries);
            is_wanted
        });
        &tables[first..first + length.count()]
    }

    /// Merges neighbouring tables into the level below; `Rest` if one that takes part cannot be read.
    fn merge(&self, upper: &[TableView], lower: &[TableView], to: usize) -> CompactionStep {
        let bounds = |tables: &[TableView]| -> Option<(Key, Key)> {
            Some((tables.iter().map(|table| table.min).min()?, tables.iter().map(|table| table.max).max()?))
        };
        let Some((min, max)) = bounds(upper) else { return CompactionStep::Rest };
        let below = lower.iter().filter(|table| table.min <= max && min <= table.max);
        let inputs = || upper.iter().chain(below.clone());
        if inputs().any(|table| table.damaged) {
            return CompactionStep::Rest;
        }
        let inputs: Vec<_> = inputs().map(|table| table.id).collect();
        match inputs[..] {
            [table] => CompactionStep::Move { table, to },
            _ => CompactionStep::Merge(Merge { inputs, to, split_entries: Some(self.table_entries) }),
        }
    }
}

/// A place below `places`. The number of the newest table is different at each step, so the same run takes the same places.
fn random_place(view: &LevelsView, places: usize) -> usize {
    let newest = view.levels.iter().flatten().map(|table| table.id.0).max().unwrap_or(0);
    let mixed = (u64::from(newest) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(mixed ^ (mixed >> 29)) * places as u128) >> 64) as usize
}

impl CompactionPolicy for Neighbours {
    fn levels(&self) -> usize {
        self.limits.len() + 2
    }

    fn partitioned(&self, level: usize) -> bool {
        level > 0
    }

    fn choose(&self, view: &LevelsView) -> CompactionStep {
        for (level, entries) in self.too_full(view) {
            let (upper, lower) = (&view.levels[level], &view.levels[level + 1]);
            if level == 0 {
                // Its tables share keys, so none of them goes without the older ones.
                match self.merge(upper, lower, 1) {
                    CompactionStep::Rest => continue,
                    step => return step,
                }
            }
            let (places, surplus) = (upper.len(), entries - self.limit(level));
            let first = random_place(view, places);
            // A table that cannot be read keeps its neighbours and those above it where they are: another place is tried.
            let mut steps = (0..places).map(|step| {
                let run = Neighbours::run(upper, (first + step) % places, surplus);
                self.merge(run, lower, level + 1)
            });
            if let Some(step) = steps.find(|step| *step != CompactionStep::Rest) {
                return step;
            }
        }
        CompactionStep::Rest
    }

    fn bottom(&self, entries: u64) -> (usize, Option<u32>) {
        let level = (1..self.levels()).find(|level| entries <= self.limit(*level));
        (level.expect("the last level has no limit"), Some(self.table_entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::entry::TableId;

    fn table(id: u32, entries: u32, min: u32, max: u32) -> TableView {
        let (min, max) = (Key::from_u32_be(min), Key::from_u32_be(max));
        TableView { id: TableId(id), entries, min, max, damaged: false }
    }

    fn policy() -> Neighbours {
        Neighbours::new(&CompactionShape { memtable_entries: 100, rings: vec![3, 9, 9999] })
    }

    fn view(levels: &[&[TableView]]) -> LevelsView {
        let mut levels: Vec<_> = levels.iter().map(|level| level.to_vec()).collect();
        levels.resize(policy().levels(), Vec::new());
        LevelsView { levels }
    }

    /// A row of tables of 100 entries with ten keys each, from this number on.
    fn row(id: u32, tables: u32) -> Vec<TableView> {
        (0..tables).map(|n| table(id + n, 100, 10 * n, 10 * n + 9)).collect()
    }

    fn inputs(step: CompactionStep) -> Vec<u32> {
        match step {
            CompactionStep::Merge(merge) => merge.inputs.iter().map(|id| id.0).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flushed_table_is_merged_with_what_it_overlaps() {
        let choice = policy().choose(&view(&[&[table(9, 100, 15, 24)], &row(1, 3)]));
        let inputs = [9, 2, 3].map(TableId).to_vec();
        assert_eq!(choice, CompactionStep::Merge(Merge { inputs, to: 1, split_entries: Some(100) }));
        let choice = policy().choose(&view(&[&[table(9, 100, 15, 24)]]));
        assert_eq!(choice, CompactionStep::Move { table: TableId(9), to: 1 });
    }

    #[test]
    fn the_fullest_level_gives_as_many_neighbours_as_it_has_too_many() {
        // Level 1 has 5 of 3 tables, level 2 has 10 of 9.
        let (upper, lower) = (row(20, 5), row(1, 10));
        let mut firsts = std::collections::BTreeSet::new();
        for newest in 30..60 {
            let below = [table(newest, 1, 0, 200)];
            let chosen = inputs(policy().choose(&view(&[&[], &upper, &lower, &below])));
            let from_upper: Vec<u32> = chosen.iter().copied().filter(|id| *id >= 20).collect();
            // The last place has one neighbour only.
            let is_run = from_upper.windows(2).all(|two| two[1] == two[0] + 1);
            assert!(is_run && (from_upper.len() == 2 || from_upper == [24]), "{chosen:?}");
            assert_eq!(chosen.len(), 2 * from_upper.len(), "one below each");
            firsts.insert(from_upper[0]);
        }
        assert_eq!(firsts.len(), 5, "every place is chosen at some time: {firsts:?}");
    }

    #[test]
    fn a_table_that_cannot_be_read_leaves_the_others_their_turn() {
        let mut upper = row(20, 5);
        for damaged in [0, 1, 2, 4] {
            upper[damaged].damaged = true;
        }
        let mut lower = row(1, 5);
        // The only one above that is whole has no damaged one below, but 200 entries too many take its neighbour along.
        assert_eq!(policy().choose(&view(&[&[], &upper, &lower])), CompactionStep::Rest);
        upper[4].damaged = false;
        assert_eq!(inputs(policy().choose(&view(&[&[], &upper, &lower]))).len() % 2, 0);
        lower[3].damaged = true;
        lower[4].damaged = true;
        assert_eq!(policy().choose(&view(&[&[], &upper, &lower])), CompactionStep::Rest);
    }
}
