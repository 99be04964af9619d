//! `plus`: small grains without a bitmap (Plus, section IV).
//!
//! 64 B grains; sections of live entries that grow by one grain at a time; instead of the bitmap, invalid
//! records and one byte for every 4 KiB page.

use super::scheme::{RecordsForm, SchemeRow};
use super::section::live::LiveFormat;
use super::validity::counts;

/// The row of `plus`.
pub const ROW: SchemeRow = SchemeRow {
    name: "plus",
    origin: "hash FTL with 64 B grains, live-only sections and invalid mapping pages (Plus, section IV)",
    grain_bytes: 64,
    format: |layout| Box::new(LiveFormat::new(layout)),
    validity: counts::by_unit,
    // Slot and grain; one read unit of DRAM for every superblock.
    records: Some(RecordsForm { record_bytes: 8, unit_buffers: 1 }),
    second_chance: false,
    section_weight: 1,
    stall_superblocks: 4,
};
