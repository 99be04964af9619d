//! Compaction policies: when tables are merged, and which. One file for each policy.
//!
//! A policy chooses by the state of the levels and moves nothing. `maintenance` carries the choice out and asks again
//! until there is nothing to do.
//!
//! To add a policy: one file here and one row in [`COMPACTIONS`]; the oracle tests run over every row.

mod leveled;
mod neighbours;
mod tiered;
mod whole;

use kvdrive_nvme::Key;

use super::entry::TableId;

/// The properties of a table that a policy sees.
#[derive(Clone, Debug, PartialEq)]
pub struct TableView {
    /// Its name; of two tables of a level that share keys, the higher one is newer.
    pub id: TableId,
    /// Keys in it.
    pub entries: u32,
    /// Lowest key.
    pub min: Key,
    /// Highest key.
    pub max: Key,
    /// Part of it cannot be read: it cannot be merged.
    pub damaged: bool,
}

/// What a policy sees: the tables of each level, newest level first. Within a level oldest first, or by key
/// if the policy keeps that level partitioned.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelsView {
    /// The tables of each level.
    pub levels: Vec<Vec<TableView>>,
}

/// A merge of several tables into a run of new ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// The tables that are replaced. Every other table or memtable that may hold one of their keys is either newer than
    /// all of them or older than all of them.
    pub inputs: Vec<TableId>,
    /// Level of the result.
    pub to: usize,
    /// Largest table of the result, entries; `None` for one table whatever its size.
    pub split_entries: Option<u32>,
}

/// A policy's choice of the next step.
#[derive(Clone, Debug, PartialEq)]
pub enum CompactionStep {
    /// Nothing.
    Rest,
    /// Merge tables.
    Merge(Merge),
    /// Move a table to another level without rewriting it.
    Move {
        /// Which table.
        table: TableId,
        /// Which level.
        to: usize,
    },
}

/// Decides which tables are merged, and when.
pub trait CompactionPolicy {
    /// Number of levels. New tables come to level 0.
    fn levels(&self) -> usize;

    /// Do the tables of this level share no keys?
    fn partitioned(&self, level: usize) -> bool;

    /// The next thing to do.
    fn choose(&self, view: &LevelsView) -> CompactionStep;

    /// Where one run of `entries` entries belongs if everything is merged: level, and largest table.
    fn bottom(&self, entries: u64) -> (usize, Option<u32>);
}

/// Arguments from which policies are built.
#[derive(Clone, Debug)]
pub struct CompactionShape {
    /// Entries of a full memtable.
    pub memtable_entries: u32,
    /// Ring sizes of `tiered`, or memtables of entries that the levels of `whole` and `neighbours` hold, one for each level.
    pub rings: Vec<u32>,
}

/// A row of [`COMPACTIONS`].
pub struct CompactionRow {
    /// Name in configurations.
    pub name: &'static str,
    /// What it is and where it comes from, in a line.
    pub origin: &'static str,
    /// Makes one.
    pub build: fn(&CompactionShape) -> Box<dyn CompactionPolicy>,
}

/// Every compaction policy there is.
pub static COMPACTIONS: &[CompactionRow] = &[
    CompactionRow {
        name: "tiered",
        origin: "rings of tables, the two oldest of a full ring merge into the next; public firmware of \
                 IterKVSSD/BandSlim",
        build: |shape| Box::new(tiered::Tiered::new(shape)),
    },
    CompactionRow {
        name: "leveled",
        origin: "one partitioned run for each level, ten times as large as the level above (LevelDB, RocksDB)",
        build: |shape| Box::new(leveled::Leveled::new(shape)),
    },
    CompactionRow {
        name: "whole",
        origin: "one run for each level, merged whole into the next when it is full (PinK, USENIX ATC'20)",
        build: |shape| Box::new(whole::Whole::new(shape)),
    },
    CompactionRow {
        name: "neighbours",
        origin: "limits of `whole`; a level above its limit gives neighbouring tables at a random place to the next (the port of \
                 PinK in AnyKey's artifact)",
        build: |shape| Box::new(neighbours::Neighbours::new(shape)),
    },
];

/// The row with this name.
pub fn compaction_row(name: &str) -> Option<&'static CompactionRow> {
    COMPACTIONS.iter().find(|row| row.name == name)
}
