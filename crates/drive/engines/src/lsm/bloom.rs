//! Bloom filters: the bits of a table's Bloom part and the probe sequence over them.
//!
//! A filter is divided into equal *regions*; a key sets and tests bits of one region only. Layout `published`
//! has one region, the whole part; ours has one per NAND page, so a lookup reads one page. Probes of a key
//! are `h1 + i * h2` scaled to the region (double hashing, as the published firmware does with 30 probes at
//! 32 bits a key).
//!
//! Setting 30 bits for each key would be a third of the cost of a store on this machine, and the filter of a table that
//! is merged before any lookup is never read. So a filter is kept as the hashes of its keys until it is first read
//! ([`FilterBuild`]).

use std::cell::LazyCell;
use std::rc::Rc;

use kvdrive_flash::media::{Deferred, PageData};
use kvdrive_nvme::Key;
use serde::{Deserialize, Serialize};

use super::entry::key_hash;

/// How many bits and probes a key gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BloomConfig {
    /// Bits for each key; 0 means tables without a filter.
    pub bits_per_key: u32,
    /// Bits set and tested for each key.
    pub hashes: u32,
}

impl BloomConfig {
    /// NAND pages of `page_bytes` that the filter of `entries` keys takes.
    pub fn pages(&self, entries: u64, page_bytes: u32) -> u32 {
        let bits = entries * u64::from(self.bits_per_key);
        bits.div_ceil(u64::from(page_bytes) * 8) as u32
    }
}

/// Where the bits of a key are.
#[derive(Clone, Copy, Debug)]
pub struct BloomShape {
    /// Number of regions.
    pub regions: u32,
    /// Bytes of one region.
    pub region_bytes: u32,
    /// Probes for each key.
    pub hashes: u32,
}

impl BloomShape {
    /// The region of `key`.
    pub fn region(&self, key: &Key) -> u32 {
        scale(key_hash(key) as u32, self.regions)
    }

    /// May `key` be among the keys of the region with these bytes? `false` is certain. A byte that is not available
    /// excludes no key.
    pub fn may_contain(&self, key: &Key, byte_at: impl Fn(usize) -> Option<u8>) -> bool {
        self.probes(key_hash(key), |bit| {
            byte_at((bit >> 3) as usize).is_none_or(|byte| byte >> (bit & 7) & 1 == 1)
        })
    }

    fn bits(&self) -> u32 {
        self.region_bytes.saturating_mul(8)
    }

    /// Hands the bits of a key to `probe` for as long as it says `true`.
    #[inline]
    fn probes(&self, hash: u64, mut probe: impl FnMut(u32) -> bool) -> bool {
        let (mut position, step) = walk_of(hash);
        let bits = self.bits();
        for _ in 0..self.hashes {
            if !probe(scale(position, bits)) {
                return false;
            }
            position = position.wrapping_add(step);
        }
        true
    }
}

/// A filter whose keys are still coming.
pub struct FilterBuild {
    shape: BloomShape,
    pages: u32,
    page_bytes: u32,
    /// Hashes of the keys of each region; none without pages.
    hashes: Vec<Vec<u64>>,
}

impl FilterBuild {
    /// A filter of `pages` pages of `page_bytes` bytes, which the shape divides into regions, for at most
    /// `most_keys` keys. Without a page there is none.
    pub fn new(shape: BloomShape, pages: u32, page_bytes: u32, most_keys: u32) -> FilterBuild {
        let regions = if pages > 0 { shape.regions } else { 0 };
        // All regions get about the same number of keys; a vector that grows would take twice the memory for a while.
        let keys = most_keys / shape.regions;
        let room = keys + keys / 16 + 1;
        let hashes = (0..regions).map(|_| Vec::with_capacity(room as usize)).collect();
        FilterBuild { shape, pages, page_bytes, hashes }
    }

    /// Adds `key`.
    #[inline]
    pub fn add(&mut self, key: &Key) {
        let hash = key_hash(key);
        // The usual filter has one region.
        let region =
            if self.shape.regions == 1 { 0 } else { scale(hash as u32, self.shape.regions) as usize };
        if let Some(hashes) = self.hashes.get_mut(region) {
            hashes.push(hash);
        }
    }

    /// NAND pages that it takes.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Its pages, in order. The bits of a region are set when the first of its pages is read.
    pub fn finish(self) -> impl Iterator<Item = PageData> {
        let FilterBuild { shape, page_bytes, hashes, .. } = self;
        hashes.into_iter().flat_map(move |mut hashes| {
            // The hashes may stay in memory for as long as the table.
            hashes.shrink_to_fit();
            let region = Rc::new(LazyCell::new(move || region_of(shape, &hashes)));
            (0..shape.region_bytes / page_bytes).map(move |page| {
                let (region, from) = (region.clone(), (page * page_bytes) as usize);
                let work = move || region[from..from + page_bytes as usize].to_vec();
                PageData::Deferred(Rc::new(Deferred::new(page_bytes, Box::new(work))))
            })
        })
    }
}

/// The bytes of a region with these hashes.
fn region_of(shape: BloomShape, hashes: &[u64]) -> Vec<u8> {
    /// A region is a NAND page where there are several, and this is the usual one.
    const PAGE_BYTES: usize = 16 * 1024;
    let mut region = vec![0; shape.region_bytes as usize];
    match <&mut [u8; PAGE_BYTES]>::try_from(&mut region[..]) {
        // A size the compiler knows is worth half of the instructions: shifts, and no test of a bound.
        Ok(page) => hashes.iter().for_each(|hash| set_bits(page, shape.hashes, *hash)),
        Err(_) => hashes.iter().for_each(|hash| set_bits(&mut region, shape.hashes, *hash)),
    }
    region
}

/// First position of a key's probes, and the step from each to the next.
#[inline]
fn walk_of(hash: u64) -> (u32, u32) {
    // The low half has already chosen the region; an odd step reaches every 32-bit position.
    ((hash >> 32) as u32, (hash as u32).rotate_left(15) | 1)
}

/// Sets the bits of a key in its region.
#[inline(always)]
fn set_bits(region: &mut [u8], hashes: u32, hash: u64) {
    /// A shift by a number that is not known takes longer than a look at these.
    const MASKS: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
    let (mut position, step) = walk_of(hash);
    let bits = (region.len() as u64 * 8).min(u32::MAX.into());
    for _ in 0..hashes {
        // As `scale`: the upper half is the bit, and its upper 29 bits are the byte.
        let scaled = u64::from(position) * bits;
        region[(scaled >> 35) as usize] |= MASKS[(scaled >> 32 & 7) as usize];
        position = position.wrapping_add(step);
    }
}

/// Maps a uniform 32-bit number to `0..n` without a division.
#[inline]
fn scale(number: u32, n: u32) -> u32 {
    ((u64::from(number) * u64::from(n)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn false_positives(shape: BloomShape, keys: u32) -> u32 {
        const PAGE_BYTES: u32 = 256;
        let pages = shape.regions * shape.region_bytes / PAGE_BYTES;
        let mut build = FilterBuild::new(shape, pages, PAGE_BYTES, keys);
        (0..keys).for_each(|number| build.add(&Key::from_u32_be(number)));
        let filter: Vec<u8> = build.finish().flat_map(|page| page.to_bytes(PAGE_BYTES)).collect();
        assert_eq!(filter.len() as u32, pages * PAGE_BYTES);
        let may = |number: u32| {
            let key = Key::from_u32_be(number);
            let region = shape.region(&key) as usize * shape.region_bytes as usize;
            shape.may_contain(&key, |at| filter.get(region + at).copied())
        };
        assert!((0..keys).all(may), "a key that was added is missing");
        (keys..keys + 20_000).filter(|number| may(*number)).count() as u32
    }

    #[test]
    fn false_positives_stay_near_theory() {
        // 10 bits and 7 probes a key: 0.8 %; 32 bits and 30 probes: 5e-7.
        let one = BloomShape { regions: 1, region_bytes: 5120, hashes: 7 };
        assert!((60..400).contains(&false_positives(one, 4096)));
        let four = BloomShape { regions: 4, region_bytes: 1280, hashes: 7 };
        assert!((60..400).contains(&false_positives(four, 4096)));
        let published = BloomShape { regions: 1, region_bytes: 16384, hashes: 30 };
        assert!(false_positives(published, 4096) <= 2);
    }

    #[test]
    fn pages_follow_the_published_size() {
        let config = BloomConfig { bits_per_key: 32, hashes: 30 };
        assert_eq!(config.pages(4096, 16384), 1);
        assert_eq!(config.pages(32768, 16384), 8);
        assert_eq!(BloomConfig { bits_per_key: 0, hashes: 0 }.pages(4096, 16384), 0);
    }
}
