//! `plus2`: what `plus` does, with a third of the bytes for every pair (ours).
//!
//! `plus` spends 8 B on a pair's entry, of which half is a slot number that the section implies all but nine bits of,
//! 256 B on the separators of every section, 4 KiB of DRAM on every superblock's invalid records and a byte on every
//! 4 KiB. At 100 M pairs of 1000 B on 128 GiB its sections take 20.7 B a pair and 128 MiB hold 6.5 % of them; its other
//! structures take 131 MB, which nobody is left to cache with when 128 MiB are all there is. Changed here:
//!
//! | what | `plus` | `plus2` | why |
//! |---|---|---|---|
//! | entry | slot 16 bits, grain 48 | grain as wide as the drive asks, fingerprint in the rest of 6 B | a lookup reads the pair of another key once in 65536 entries it passes, not whenever a slot is taken |
//! | section | 480 slots, two levels, steps of 64 B | a bucket: a header of 16 B and its cells ([`super::section::bucket`]) | 6.5 B a pair in DRAM at 32 pairs a section, 7.5 B on flash; three of them fit where one did |
//! | table | one slot a grain, quadratic probing | one section for 680 grains; a full one passes pairs on to the next | no tombstones: a delete leaves nothing |
//! | directory | 7 B a section | as many bits as an address takes: 5 B | |
//! | invalid record | 8 B, buffers of 4 KiB | 3 B, buffers of 512 B ([`super::records::COMPACT`]) | its slot is never read; eight times less DRAM |
//! | invalid counts | a byte for 4 KiB | two bytes for a flash page of 32 KiB | collection reads flash pages |
//! | cache | FIFO | FIFO with a second chance | what is hot stays; nothing changes where nothing is hot |
//! | victims | one queue | a valid grain of a section counts four times | see below |
//!
//! Superblocks of sections are few and die fast, those of pairs are many and die slowly. With one queue both are
//! collected when equally much is valid in them. Space is worth most to what is rewritten most: with write rate `r` and
//! live bytes `s`, copies are least when spare space is shared as the square root of `r s`, which leaves sections
//! a spare space of about twice their size and pairs practically all they had. A weight comes near that without knowing rates;
//! [`SECTION_WEIGHT`] says what it brings.
//!
//! What is the same: pairs, superblocks, streams, collection, journal and recovery. Left out after the arithmetic: sections of
//! 4 KiB that split as pairs come (a store would rewrite 2.4 KiB where 240 B do), reads of collection sorted by section (at
//! full size 8192 pairs of a victim lie in 8170 of 3.2 M sections; there is nothing to merge), no invalid records at all
//! (every dead pair of a victim would cost a section read).

use super::records;
use super::scheme::SchemeRow;
use super::section::bucket::BucketFormat;
use super::validity::counts;

/// Copies of sections fall to a twentieth with it, from 1.4 pages for every page written first to 0.15, and copies of
/// pairs do not grow (overwrites of 1/64 of the paper's drive).
const SECTION_WEIGHT: u64 = 4;

/// The row of `plus2`.
pub const ROW: SchemeRow = SchemeRow {
    name: "plus2",
    origin: "hash FTL with buckets of fingerprinted entries and three-byte invalid records (ours)",
    grain_bytes: 64,
    format: |layout| Box::new(BucketFormat::new(layout)),
    validity: counts::by_page,
    records: Some(records::COMPACT),
    second_chance: true,
    section_weight: SECTION_WEIGHT,
};
