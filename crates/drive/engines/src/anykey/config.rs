//! The configuration of engine `anykey`: section `[anykey]`. The sections of page buffer, packing and value log are those
//! of `lsm`.

use kvdrive_declare::Section;

/// Settings of the engine: section `[anykey]`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("anykey", default)]
pub struct AnyKeyConfig {
    /// Most pages of a group: its records, sorted by hash, and its index in the order of keys.
    #[setting(is = Integer(4, 1024))]
    pub group_pages: u32,
    /// Levels of groups on flash.
    #[setting(is = Integer(2, 8), image)]
    pub levels: u32,
    /// Entries of a full memtable: keys, and addresses of values that are in the log.
    #[setting(is = Integer(16, 1 << 24))]
    pub memtable_entries: u32,
    /// Segments of the value log, in percent of all, above which values are fetched into groups. Values that are larger
    /// than half of a page stay in the log and do not count.
    #[setting(is = Integer(1, 100))]
    pub log_percent: u32,
    /// AnyKey+: values of a segment that is emptied go back to the log, if the level of their group is nearly full.
    #[setting(default = false)]
    pub write_back: bool,
    /// DRAM of the index, bytes: lists of levels first, then lists of hashes, upper levels first. 0: all of them.
    #[setting(is = Integer(0, 1 << 40), shrinks)]
    pub dram_bytes: u64,
    /// Firmware time to hash a key, ns.
    #[setting(is = TIME)]
    pub hash_ns: u64,
    /// Firmware time for each record that a flush or a compaction merges and sorts, ns.
    #[setting(is = TIME)]
    pub record_ns: u64,
}
