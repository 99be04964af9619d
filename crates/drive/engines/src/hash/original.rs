//! `original`: the demand-cached hash FTL that `plus` improves on (Plus, section III-A).
//!
//! 512 B grains, an entry for every slot of the hash table, a bit for every grain in DRAM.

use super::scheme::SchemeRow;
use super::section::fixed::{FixedFormat, FixedShape};
use super::validity::bitmap;

/// The row of `original`.
pub const ROW: SchemeRow = SchemeRow {
    name: "original",
    origin: "hash FTL with 512 B grains, whole sections and a grain bitmap (Plus, section III-A)",
    grain_bytes: 512,
    format: |layout| Box::new(FixedFormat::new(layout, FixedShape::PLAIN)),
    validity: bitmap::build,
    records: None,
    second_chance: false,
    section_weight: 1,
    stall_superblocks: 2,
};
