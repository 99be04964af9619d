//! Differences between the hash FTLs: the format of sections, and how valid grains are known. A new FTL is
//! one file with a row in [`SCHEMES`].

use super::layout::Layout;
use super::section::Format;
use super::validity::BuildValidity;
use super::{hash8, original, plus, plus2};

/// Lengths of invalid records and their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsForm {
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Number of buffers in a read unit.
    pub unit_buffers: u32,
}

impl RecordsForm {
    /// Bytes of an invalid page, and of the buffer that becomes one.
    pub(super) fn page_bytes(&self, layout: &Layout) -> u32 {
        (layout.unit_bytes / self.unit_buffers).next_multiple_of(layout.grain_bytes)
    }

    /// DRAM of the buffers, one for each superblock, bytes.
    pub fn buffer_bytes(&self, layout: &Layout) -> u64 {
        u64::from(layout.superblocks) * u64::from(self.page_bytes(layout))
    }
}

/// A hash FTL.
pub struct SchemeRow {
    /// Its name in configurations: the name of the engine.
    pub name: &'static str,
    /// What it is and where it comes from, in one line.
    pub origin: &'static str,
    /// Bytes of a grain as published.
    pub grain_bytes: u32,
    /// Format of its sections.
    pub format: fn(&Layout) -> Box<dyn Format>,
    /// How it tracks which grains are valid.
    pub validity: BuildValidity,
    /// Format of its invalid records, if it has them.
    pub records: Option<RecordsForm>,
    /// Do sections that host commands used stay in the cache for one more round?
    pub second_chance: bool,
    /// Weight of a section's valid grain when a victim is chosen; 1, as published: the same as a pair's.
    pub section_weight: u64,
    /// Commands wait if this many superblocks or fewer are free, as in the published code.
    pub stall_superblocks: u32,
}

/// Every hash FTL.
pub static SCHEMES: &[&SchemeRow] = &[&original::ROW, &plus::ROW, &plus2::ROW, &hash8::ROW];

/// The hash FTL with this name.
pub fn scheme(name: &str) -> Option<&'static SchemeRow> {
    SCHEMES.iter().copied().find(|row| row.name == name)
}
