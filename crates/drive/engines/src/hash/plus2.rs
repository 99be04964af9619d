//! `plus2`: a hash FTL that does the same as `plus` with a third of the bytes for every pair (ours).
//!
//! An entry takes 6 B (a grain address as wide as the drive needs, and a fingerprint in the remaining bits), a
//! section is a bucket of entries ([`super::section::bucket`]) that covers 680 grains, an invalid record takes
//! 3 B, the section cache gives a section a second chance, and collection weighs a section's valid grain four
//! times. Pairs, superblocks, streams, collection, journal and recovery are those of `plus`.
//!
//! A pair takes 6.5 B of the cache at 32 pairs a section and 7.5 B to 8 B on flash. A lookup reads the pair of
//! another key once in 65536 entries that it passes.
//!
//! `docs/decisions/plus2.md` has the arithmetic, a comparison of both engines, and the alternatives that were left out.

use super::scheme::{RecordsForm, SchemeRow};
use super::section::bucket::BucketFormat;
use super::validity::counts;

/// Copies of section pages per page written first, with weight 1 and with this one: 1.3 and 0.16 with eight
/// superblocks kept free at 1/64 of the paper's drive, 3.3 and 0.17 with four. Copies of pairs grow by 4 %.
const SECTION_WEIGHT: u64 = 4;

/// The row of `plus2`.
pub const ROW: SchemeRow = SchemeRow {
    name: "plus2",
    origin: "hash FTL with buckets of fingerprinted entries and three-byte invalid records (ours)",
    grain_bytes: 64,
    format: |layout| Box::new(BucketFormat::new(layout)),
    validity: counts::by_page,
    // The grain only; an eighth of the DRAM.
    records: Some(RecordsForm { record_bytes: 3, unit_buffers: 8 }),
    second_chance: true,
    section_weight: SECTION_WEIGHT,
    // As for `plus`.
    stall_superblocks: 4,
};
