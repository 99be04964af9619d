//! Which tables there are: an immutable list, replaced as a whole when a flush or a merge ends.
//!
//! A lookup or cursor clones the `Rc` of the list it began with; that is its pin on every table in it.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_nvme::Key;

use super::compaction::{LevelsView, TableView};
use super::entry::TableId;
use super::table::Table;

/// Merges of levels that flushes leave to a task beside commands.
#[derive(Default)]
pub struct LeftLevels {
    /// Do flushes leave them?
    pub leaves: Cell<bool>,
    /// Has a flush left any?
    pub is_any: Cell<bool>,
}

/// The tables of one level.
#[derive(Clone, Default)]
pub struct Level {
    /// By age, oldest first, or, if `partitioned`, by key; lost tables then stand before all others.
    tables: Vec<Rc<Table>>,
    /// No two tables share a key.
    partitioned: bool,
    /// Lost tables at the front of a partitioned level ([`Table::is_lost`]).
    lost: usize,
}

impl Level {
    /// The tables in their order.
    pub fn tables(&self) -> &[Rc<Table>] {
        &self.tables
    }

    /// Do its tables share no key?
    pub fn is_partitioned(&self) -> bool {
        self.partitioned
    }

    fn sort(&mut self) {
        if self.partitioned {
            self.tables.sort_by_key(|table| (!table.is_lost(), table.facts.min, table.facts.id));
            self.lost = self.tables.iter().filter(|table| table.is_lost()).count();
        } else {
            self.tables.sort_by_key(|table| table.facts.id);
        }
    }

    /// Tables that may hold `key`, newest first.
    fn candidates<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Rc<Table>> {
        let searched = if self.partitioned {
            let sorted = &self.tables[self.lost..];
            let at = self.lost + sorted.partition_point(|table| table.facts.max < *key);
            let one = &self.tables[at..(at + 1).min(self.tables.len())];
            (one, &self.tables[..self.lost])
        } else {
            (&self.tables[..], &self.tables[..0])
        };
        searched.0.iter().rev().chain(searched.1).filter(|table| table.facts.covers(key))
    }
}

/// All tables at one moment.
#[derive(Clone)]
pub struct Version {
    levels: Vec<Level>,
}

impl Version {
    /// No table. `partitioned` says of each level whether its tables share no keys.
    pub fn new(partitioned: impl Iterator<Item = bool>) -> Version {
        Version { levels: partitioned.map(|partitioned| Level { partitioned, ..Level::default() }).collect() }
    }

    /// This version without `dropped` and with `added`, each at its level.
    pub fn changed(&self, dropped: &[TableId], added: impl Iterator<Item = (usize, Rc<Table>)>) -> Version {
        let mut version = self.clone();
        for level in &mut version.levels {
            level.tables.retain(|table| !dropped.contains(&table.facts.id));
        }
        for (level, table) in added {
            version.levels[level].tables.push(table);
        }
        version.levels.iter_mut().for_each(Level::sort);
        version
    }

    /// The levels, newest first.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Every table, newest first (of tables that share a key).
    pub fn newest_first(&self) -> impl Iterator<Item = &Rc<Table>> {
        self.levels.iter().flat_map(|level| level.tables.iter().rev())
    }

    /// Tables that may hold `key`, newest first.
    pub fn candidates<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Rc<Table>> {
        self.levels.iter().flat_map(move |level| level.candidates(key))
    }

    /// The levels as a compaction policy sees them.
    pub fn view(&self) -> LevelsView {
        let view = |table: &Rc<Table>| TableView {
            id: table.facts.id,
            entries: table.facts.entries,
            min: table.facts.min,
            max: table.facts.max,
            damaged: table.is_damaged(),
        };
        LevelsView {
            levels: self.levels.iter().map(|level| level.tables.iter().map(view).collect()).collect(),
        }
    }

    /// The chosen tables, newest first, and those of the other tables that may hold older entries than they.
    pub fn split(&self, chosen: &[TableId]) -> (Vec<Rc<Table>>, Vec<Rc<Table>>) {
        let rest = self.newest_first().skip_while(|table| !chosen.contains(&table.facts.id));
        rest.cloned().partition(|table| chosen.contains(&table.facts.id))
    }
}
