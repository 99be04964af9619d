//! Settings of the index.

use serde::{Deserialize, Serialize};

use super::bloom::BloomConfig;
use super::compaction::{COMPACTIONS, compaction_row};
use super::layout::{LAYOUTS, layout_row};

/// Settings of the index; `Default` is the published firmware (facts 3.1-3.3), without any firmware time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IndexConfig {
    /// How tables look: a name of [`LAYOUTS`].
    pub layout: String,
    /// Entries of a full memtable.
    pub memtable_entries: u32,
    /// Bloom filter bits for each key; 0 for none.
    pub bloom_bits_per_key: u32,
    /// Bloom filter probes for each key.
    pub bloom_hashes: u32,
    /// When tables are merged: a name of [`COMPACTIONS`].
    pub compaction: String,
    /// Tables that a level has places for, one number for each level (policy `tiered`).
    pub rings: Vec<u32>,
    /// Firmware time of an insertion into the memtable, ns.
    pub memtable_insert_ns: u64,
    /// Firmware time of looking for a key in the memtable or in one table, flash reads not included, ns.
    pub index_probe_ns: u64,
    /// Firmware time for each entry that is written to a table, by a flush or a merge, ns.
    pub table_entry_ns: u64,
}

impl Default for IndexConfig {
    fn default() -> Self {
        IndexConfig {
            layout: "published".into(),
            memtable_entries: 4096,
            bloom_bits_per_key: 32,
            bloom_hashes: 30,
            compaction: "tiered".into(),
            rings: vec![4, 16, 128, 65537],
            memtable_insert_ns: 0,
            index_probe_ns: 0,
            table_entry_ns: 0,
        }
    }
}

impl IndexConfig {
    /// Are these settings possible? If not, a line that begins with the key of the setting.
    pub fn check(&self) -> Result<(), String> {
        let names = |rows: Vec<&str>| rows.join(", ");
        if layout_row(&self.layout).is_none() {
            let known = names(LAYOUTS.iter().map(|row| row.name).collect());
            return Err(format!("layout: \"{}\" is not one of {known}", self.layout));
        }
        if compaction_row(&self.compaction).is_none() {
            let known = names(COMPACTIONS.iter().map(|row| row.name).collect());
            return Err(format!("compaction: \"{}\" is not one of {known}", self.compaction));
        }
        if !(1..=1 << 24).contains(&self.memtable_entries) {
            return Err(format!(
                "memtable_entries: {} is not between 1 and {}",
                self.memtable_entries,
                1 << 24
            ));
        }
        if self.bloom_bits_per_key > 64 {
            return Err(format!("bloom_bits_per_key: {} is not between 0 and 64", self.bloom_bits_per_key));
        }
        if self.bloom_bits_per_key > 0 && !(1..=64).contains(&self.bloom_hashes) {
            return Err(format!("bloom_hashes: {} is not between 1 and 64", self.bloom_hashes));
        }
        if !(1..=255).contains(&self.rings.len()) {
            return Err(format!("rings: {} levels are not between 1 and 255", self.rings.len()));
        }
        Ok(())
    }

    pub(super) fn bloom(&self) -> BloomConfig {
        BloomConfig { bits_per_key: self.bloom_bits_per_key, hashes: self.bloom_hashes }
    }
}
