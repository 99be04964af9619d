//! The purpose of a flash operation. Every operation passes its purpose to the port; reports break their counts down by
//! it.

use kvdrive_declare::By;
use serde::{Deserialize, Serialize};

/// The reason of a flash operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Purpose {
    /// Value pages: the value log of `lsm`.
    Value,
    /// Index pages written for the first time: a memtable becomes a table on flash.
    Index,
    /// Reads on behalf of a lookup of one key.
    Lookup,
    /// Reading and writing tables to merge them.
    Compaction,
    /// Writing index pages of levels that are pinned in DRAM, and are on flash for the next power-on only.
    Pinned,
    /// Reads on behalf of an iterator or a List.
    Cursor,
    /// Garbage collection of the value log: values moved.
    ValueGc,
    /// Garbage collection of the value log: index pages read to find out which keys still point at the
    /// victim.
    GcIndex,
    /// Garbage collection of the flash translation layer: pages copied, blocks erased.
    FtlGc,
    /// Mapping pages of a hash engine.
    Map,
    /// Invalid-mapping pages of a hash engine.
    InvalidMap,
    /// Key-value data pages of a hash engine, and blocks of a block namespace.
    Data,
    /// Garbage collection of data pages by a hash engine.
    DataGc,
    /// Garbage collection of mapping pages by a hash engine.
    MapGc,
    /// Mapping pages that a hash engine reads to move pairs: garbage collection changes the sections of the
    /// pairs that it moves.
    GcMap,
    /// Reads after power-on that rebuild state lost with the power.
    Recovery,
    /// Replacement of a bad block: its content is copied to a spare block, and the table of bad blocks is
    /// written.
    Retire,
}

impl Purpose {
    /// Labels of counters that count by purpose.
    pub const LABELS: By = By {
        label: "purpose",
        places: Purpose::COUNT,
        name_of: |index| Purpose::ALL[index].1,
        is_sparse: true,
    };

    /// Number of purposes.
    pub const COUNT: usize = Purpose::ALL.len();

    /// Every purpose with its name in reports, in the order of the reports.
    pub const ALL: [(Purpose, &'static str); 17] = [
        (Purpose::Value, "value"),
        (Purpose::Index, "index"),
        (Purpose::Lookup, "lookup"),
        (Purpose::Compaction, "compaction"),
        (Purpose::Pinned, "pinned"),
        (Purpose::Cursor, "cursor"),
        (Purpose::ValueGc, "value_gc"),
        (Purpose::GcIndex, "gc_index"),
        (Purpose::FtlGc, "ftl_gc"),
        (Purpose::Map, "map"),
        (Purpose::InvalidMap, "invalid_map"),
        (Purpose::Data, "data"),
        (Purpose::DataGc, "data_gc"),
        (Purpose::MapGc, "map_gc"),
        (Purpose::GcMap, "gc_map"),
        (Purpose::Recovery, "recovery"),
        (Purpose::Retire, "retire"),
    ];

    /// Its name in reports and configurations.
    pub fn name(self) -> &'static str {
        Purpose::ALL[self.index()].1
    }

    /// Its row in [`Purpose::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (row, (purpose, name)) in Purpose::ALL.iter().enumerate() {
            assert_eq!(purpose.index(), row);
            assert_eq!(purpose.name(), *name);
        }
    }
}
