//! The grain bitmap of `original`: one bit for each grain, all in DRAM (Plus, section III-A). It takes 1 GiB
//! for 4 TiB of 512 B grains and 8 GiB for 64 B grains, which is why `plus` exists.

use std::hint::black_box;

use super::Validity;
use crate::hash::layout::{Grain, Layout};

/// One bit a grain.
pub struct Bitmap {
    words: Vec<u64>,
    superblock_grains: u64,
}

/// The bitmap of an empty drive.
pub fn build(layout: &Layout) -> Box<dyn Validity> {
    Box::new(Bitmap {
        words: vec![0; layout.grains().div_ceil(64) as usize],
        superblock_grains: layout.superblock_grains.into(),
    })
}

impl Bitmap {
    /// Calls `on` with every word that covers any of the `grains` grains from `at` on, and the mask of those
    /// grains.
    fn masks(at: u64, grains: u64, mut on: impl FnMut(usize, u64)) {
        let (mut here, end) = (at, at + grains);
        while here < end {
            let stop = end.min((here / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (stop - here))) << (here % 64);
            on((here / 64) as usize, mask);
            here = stop;
        }
    }
}

impl Validity for Bitmap {
    fn write(&mut self, at: Grain, grains: u32) {
        Bitmap::masks(at.0, grains.into(), |word, mask| self.words[word] |= mask);
    }

    fn invalidate(&mut self, at: Grain, grains: u32) -> bool {
        Bitmap::masks(at.0, grains.into(), |word, mask| self.words[word] &= !mask);
        true
    }

    fn is_dead(&self, at: Grain, grains: u32) -> bool {
        let mut dead = true;
        Bitmap::masks(at.0, grains.into(), |word, mask| dead &= self.words[word] & mask == 0);
        dead
    }

    fn meet(&self, at: Grain) {
        black_box(self.words[(at.0 / 64) as usize]);
    }

    fn is_valid(&self, at: Grain) -> Option<bool> {
        Some(self.words[(at.0 / 64) as usize] >> (at.0 % 64) & 1 == 1)
    }

    fn reset(&mut self, superblock: u32) {
        let first = u64::from(superblock) * self.superblock_grains;
        Bitmap::masks(first, self.superblock_grains, |word, mask| self.words[word] &= !mask);
    }

    fn dram_bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }
}
