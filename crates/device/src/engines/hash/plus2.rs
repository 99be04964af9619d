//! `plus2`: what `plus` does, with a third of the bytes for every pair (ours).
//!
//! `plus` spends 8 B on a pair's entry, of which half is a slot number that the section implies all but nine bits of,
//! 256 B on the separators of every section, 4 KiB of DRAM on every superblock's invalid records and a byte on every
//! 4 KiB. At 100 M pairs of 1000 B on 128 GiB its sections take 20.7 B a pair and 128 MiB hold 6.5 % of them; its other
//! structures take 136 MB, which leaves nothing to cache with when 128 MiB are all there is. Changed here:
//!
//! | what | `plus` | `plus2` |
//! |---|---|---|
//! | entry | slot 16 bits, grain 48 | grain as wide as the drive asks, a fingerprint in the rest of 6 B |
//! | section | 480 slots, two levels | a bucket, 16 B and its cells ([`super::section::bucket`]) |
//! | table | one slot a grain, quadratic probing | a section for 680 grains; a full one passes pairs on |
//! | delete | a tombstone where probes passed | nothing is left |
//! | directory | 7 B a section | as many bits as an address takes: 5 B |
//! | invalid record | 8 B, buffers of 4 KiB | 3 B, buffers of 512 B ([`super::records::COMPACT`]) |
//! | invalid counts | a byte for 4 KiB | two bytes for a flash page, what collection reads |
//! | cache | FIFO | FIFO with a second chance |
//! | victims | one queue | a section's valid grain counts four times |
//!
//! A pair takes 6.5 B of the cache at 32 pairs a section, and 7.5 B to 8 B on flash. A lookup reads the pair of another
//! key once in 65536 entries it passes.
//!
//! Superblocks of sections are few and die fast, those of pairs are many and die slowly. With one queue both are
//! collected when equally much is valid in them. Space is worth most to what is rewritten most: with write rate `r` and
//! live bytes `s`, copies are least when spare space is shared as the square root of `r s`, which leaves sections a
//! spare space of about twice their size and pairs practically all they had. A weight comes near that without knowing
//! rates.
//!
//! What is the same: pairs, superblocks, streams, collection, journal and recovery. Left out after the arithmetic:
//! * sections of 4 KiB that split as pairs come: a store would rewrite 2.4 KiB where 250 B do;
//! * reads of collection sorted by section: at full size the 8192 pairs of a superblock lie in 8181 of 3.2 M sections;
//! * no invalid records at all: every dead pair of a victim would cost a section read.
//!
//! # Beside `plus`
//!
//! `kvdrive compare --engine plus,plus2 --profile kvvirt --workload plus-a,plus-b,plus-c,plus-d,plus-f --distribution
//! uniform,zipfian --scale 1/64 --dram published`, then `total-128` and `total-256`. Thousand operations a second
//! (modelled) and how many times as many; behind them bytes programmed for a byte stored (counted). B and D store 5 % of
//! 156 250 operations, a superblock's worth: what is programmed meanwhile is mostly older.
//!
//! | | published | total-128 | total-256 |
//! |---|---|---|---|
//! | a uniform | 131.3 → 154.0, x1.17; 5.13 → 3.16 | 127.1 → 147.2, x1.16; 5.30 → 3.30 | 129.5 → 166.1, x1.28; 5.27 → 3.10 |
//! | b uniform | 185.9 → 197.6, x1.06; 4.02 → 4.46 | 178.0 → 201.3, x1.13; 4.96 → 1.28 | 183.7 → 220.9, x1.20; 5.16 → 2.20 |
//! | c uniform | 192.9 → 209.0, x1.08; 0.00 → 0.00 | 187.0 → 203.3, x1.09; 0.00 → 0.00 | 193.0 → 226.1, x1.17; 0.00 → 0.00 |
//! | d uniform | 197.9 → 225.5, x1.14; 7.35 → 1.96 | 174.5 → 213.9, x1.23; 6.05 → 4.31 | 205.4 → 225.7, x1.10; 4.03 → 4.27 |
//! | f uniform | 134.9 → 155.6, x1.15; 5.45 → 3.08 | 129.2 → 150.4, x1.16; 5.81 → 3.27 | 133.4 → 169.8, x1.27; 5.64 → 2.83 |
//! | a zipfian | 163.6 → 195.6, x1.20; 4.38 → 2.72 | 138.3 → 186.2, x1.35; 5.02 → 2.67 | 161.6 → 208.5, x1.29; 4.41 → 2.89 |
//! | b zipfian | 201.7 → 213.3, x1.06; 5.50 → 4.30 | 175.6 → 212.0, x1.21; 5.48 → 3.63 | 198.0 → 231.3, x1.17; 6.90 → 1.96 |
//! | c zipfian | 118.0 → 118.6, x1.01; 0.00 → 0.00 | 113.5 → 118.6, x1.04; 0.00 → 0.00 | 117.3 → 119.7, x1.02; 0.00 → 0.00 |
//! | d zipfian | 203.5 → 214.9, x1.06; 5.24 → 5.01 | 173.3 → 213.1, x1.23; 6.33 → 4.40 | 205.1 → 230.0, x1.12; 4.59 → 2.71 |
//! | f zipfian | 164.1 → 202.4, x1.23; 4.65 → 2.28 | 145.4 → 191.7, x1.32; 5.03 → 2.62 | 164.8 → 211.5, x1.28; 4.66 → 2.56 |
//!
//! Filling and overwriting programs 3.12 bytes for a byte with `plus` and 1.90 with `plus2` (published; total-128: 3.22
//! and 1.92; total-256: 3.11 and 1.84); with the run of A behind it, 3.17 and 1.93. A uniform command of `plus` reads a
//! section in 93 % of all cases, one of `plus2` in 79 %: 128 MiB hold 7 % and 21 % of the sections. DRAM besides the
//! section cache at full size, by arithmetic: 136 MB with `plus` (invalid records 67, counts 34, directory 31, write
//! buffer 4), 37 MB with `plus2` (8, 8, 16, 4).
//!
//! Reads gain least: a section less often, and then still the pair. C zipfian waits for the dies of the hottest pairs,
//! whatever the table. The weight of sections decides how A fares when little is kept free: with four superblocks of
//! 256 and a weight of 1 A uniform came to 0.94 of `plus`, with eight to 1.20. `plus` was not run with a weight.

use super::records;
use super::scheme::SchemeRow;
use super::section::bucket::BucketFormat;
use super::validity::counts;

/// Pages of sections copied for a page written first, without it and with it: 1.3 and 0.16 with eight superblocks kept
/// free at 1/64 of the paper's drive, 3.3 and 0.17 with four. Copies of pairs grow by 4 %.
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
