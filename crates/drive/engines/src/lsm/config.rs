//! The configuration of engine `lsm`: four sections of a profile.

use kvdrive_declare::Section;
use kvdrive_flash::Geometry;

use super::bloom::BloomConfig;
use super::compaction::{COMPACTIONS, compaction_row};
use super::layout::{LAYOUTS, layout_row};
use crate::dram::{EVICTIONS, eviction_row};
use crate::packing::PackingConfig;
use crate::page_buffer::BufferConfig;

/// Settings of the engine.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("lsm")]
pub struct LsmConfig {
    /// The page buffer.
    #[setting(part)]
    pub buffer: BufferConfig,
    /// Where values go within pages.
    #[setting(part)]
    pub packing: PackingConfig,
    /// The index.
    #[setting(part)]
    pub index: IndexConfig,
    /// Garbage collection of the value log.
    #[setting(part)]
    pub gc: GcConfig,
}

/// Garbage collection of the value log: section `[gc]`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("gc", default)]
pub struct GcConfig {
    /// Whether garbage collection of the value log runs. Without it, a full log refuses stores until deletes have
    /// emptied whole segments.
    #[setting(default = true)]
    pub enabled: bool,
    /// NAND pages of a segment.
    #[setting(is = Integer(1, 1 << 20), image)]
    pub segment_pages: u32,
    /// Stores collect garbage while this many segments or fewer are free.
    #[setting(is = Integer(1, 1 << 20), when = &[When::on("gc.enabled")])]
    pub free_segments_low: u32,
    /// Segments that are collected together: the pages of the index are read once for all of them.
    #[setting(is = Integer(1, 64), when = &[When::on("gc.enabled")])]
    pub victims: u32,
    /// Segments, besides `gc.free_segments_low`, below which segments are collected beside stores, before space is
    /// needed; at most a 64th of all segments. In `lsm` one store in 128 waits while that is done, for the longer the fewer
    /// segments are free, and the whole index is merged beside stores, too. 0: the store that needs room collects and
    /// merges, and waits for whole segments.
    #[setting(is = Integer(0, 1 << 16), when = &[When::on("gc.enabled"), When::one_of("engine.name", &["lsm", "anykey"])])]
    pub ahead_segments: u32,
    /// Free segments that stores of the host never take. One of them is for values that collection moves, the others
    /// are for tables.
    #[setting(is = Integer(1, 1 << 20))]
    pub free_segments_reserved: u32,
}

impl GcConfig {
    /// Are these settings possible, on a drive of `geometry`? If not, a line that begins with the key of the
    /// setting.
    pub fn check(&self, geometry: &Geometry) -> Result<(), String> {
        let GcConfig { segment_pages, free_segments_low: low, free_segments_reserved: reserved, .. } = self;
        if reserved >= low {
            return Err(format!(
                "free_segments_reserved: {reserved}; must be below gc.free_segments_low, {low}"
            ));
        }
        let segments = geometry.pages().checked_div((*segment_pages).into()).unwrap_or(0);
        let least = 2 * u64::from(*low);
        if segments < least {
            return Err(format!(
                "segment_pages: {segment_pages} pages make {segments} segments of the drive; at least {least} (twice gc.free_segments_low)"
            ));
        }
        Ok(())
    }
}

/// Settings of the index: section `[lsm]`, without its iterators. `Default` is the published firmware, without any
/// firmware time.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("lsm")]
pub struct IndexConfig {
    /// Layout of a table on flash. `published`: as in the published firmware, with keys of exactly 4 B. `sound`: keys
    /// of 1 to 255 B, and a sequence number in each entry. `segments`: PinK's, one page to read for each table.
    #[setting(is = Row(|| LAYOUTS.iter().map(|row| row.name).collect()), image)]
    pub layout: String,
    /// Entries of a full memtable.
    #[setting(is = Integer(16, 1 << 24))]
    pub memtable_entries: u32,
    /// Bloom filter bits for each key; 0 for none.
    #[setting(is = Integer(0, 64))]
    pub bloom_bits_per_key: u32,
    /// Bits of the Bloom filter that each key sets. A filter on flash does not record this number, so an image keeps
    /// it.
    #[setting(is = Integer(1, 64), image, when = &[When::on("lsm.bloom_bits_per_key")])]
    pub bloom_hashes: u32,
    /// Compaction policy: which tables are merged, and when (`kvdrive list compactions`).
    #[setting(is = Row(|| COMPACTIONS.iter().map(|row| row.name).collect()), image)]
    pub compaction: String,
    /// Policy `tiered`: number of tables for which a level has places, one number for each level. Policies
    /// `whole` and `neighbours`: memtables of entries that level 1 and those after it hold; the last number is the last
    /// level's, which has no limit.
    #[setting(is = Integers(4, 3, 1 << 20))]
    pub rings: Vec<u32>,
    /// The whole index is merged when the bytes that count as live have grown by this share, in percent, since its last
    /// such merge, so that at most as many more count as live than are. 0: it is merged only for room.
    #[setting(is = Integer(0, 1000))]
    pub count_growth_percent: u32,
    /// DRAM of the index, bytes: lists of tables and of their pages first, then pages of pinned levels, filters, and
    /// other pages that lookups have read. 0: as published, all lists and no pages.
    #[setting(is = Integer(0, 1 << 40), shrinks)]
    pub dram_bytes: u64,
    /// Upper levels whose pages are in DRAM as far as it has room for them (PinK). They are on flash, too.
    #[setting(is = Integer(0, 64), when = &[When::on("lsm.dram_bytes")])]
    pub pinned_levels: u32,
    /// Which page makes room in DRAM.
    #[setting(is = Row(|| EVICTIONS.iter().map(|row| row.name).collect()), when = &[When::on("lsm.dram_bytes")])]
    pub dram_eviction: String,
    /// Firmware time to insert an entry into the memtable, ns.
    #[setting(is = TIME, key = "controller.index_insert_ns")]
    pub memtable_insert_ns: u64,
    /// Firmware time to look for a key in the memtable or in one table, flash reads not included, ns.
    #[setting(is = TIME, key = "controller.index_probe_ns")]
    pub index_probe_ns: u64,
    /// Firmware time for each entry that a flush or a merge writes to a table, ns.
    #[setting(is = TIME)]
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
            count_growth_percent: 0,
            dram_bytes: 0,
            pinned_levels: 0,
            dram_eviction: "lru".into(),
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
        if eviction_row(&self.dram_eviction).is_none() {
            let known = names(EVICTIONS.iter().map(|row| row.name).collect());
            return Err(format!("dram_eviction: \"{}\" is not one of {known}", self.dram_eviction));
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
