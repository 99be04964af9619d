//! `hash8`: the demand-cached hash FTL that PinK's authors compare with (USENIX ATC'20, after its public submission of
//! October 2019): `original`, the FTL of the same group, with a signature beside each address.
//!
//! A bucket is an address of 4 B and 8 bits of the key's hash, and the table has one for each KiB of flash: 2^26 on
//! 64 GiB, 320 MiB. A lookup reads the pair of a bucket only if the signatures agree, so of the buckets of other keys on
//! its way it reads one in 256. The published sections have 8 KiB (`hash.unit_bytes`), and pairs take units of 512 B.

use super::scheme::SchemeRow;
use super::section::fixed::{FixedFormat, FixedShape};
use super::validity::bitmap;

/// The row of `hash8`.
pub const ROW: SchemeRow = SchemeRow {
    name: "hash8",
    origin: "original with 8-bit signatures, and a slot for each KiB; the baseline of PinK (USENIX ATC'20)",
    grain_bytes: 512,
    format: |layout| {
        Box::new(FixedFormat::new(layout, FixedShape { signature_bytes: 1, grains_per_slot: 2 }))
    },
    validity: bitmap::build,
    records: None,
    second_chance: false,
    section_weight: 1,
    stall_superblocks: 2,
};
