//! What tells one hash FTL from another: how sections look, how valid grains are known. A new one is one file
//! with its row in [`SCHEMES`].

use super::layout::Layout;
use super::section::Format;
use super::validity::BuildValidity;
use super::{original, plus, plus2};

/// How long records and their buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsForm {
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Buffers that a read unit has room for.
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

/// One hash FTL.
pub struct SchemeRow {
    /// Its name in configurations: the engine's.
    pub name: &'static str,
    /// What it is and where it comes from, in a line.
    pub origin: &'static str,
    /// Bytes of a grain as published.
    pub grain_bytes: u32,
    /// How its sections look.
    pub format: fn(&Layout) -> Box<dyn Format>,
    /// How it knows valid grains.
    pub validity: BuildValidity,
    /// How it records what became invalid, if it does.
    pub records: Option<RecordsForm>,
    /// Do sections that the host met again stay in the cache for one more round?
    pub second_chance: bool,
    /// How much later than pairs sections are collected: 1, as published, when superblocks of both have as
    /// much valid.
    pub section_weight: u64,
    /// With how few free superblocks, or fewer, commands wait in the published code.
    pub stall_superblocks: u32,
}

/// Every hash FTL.
pub const SCHEMES: &[&SchemeRow] = &[&original::ROW, &plus::ROW, &plus2::ROW];

/// The hash FTL called `name`.
pub fn scheme(name: &str) -> Option<&'static SchemeRow> {
    SCHEMES.iter().copied().find(|row| row.name == name)
}
