//! Counts of invalid grains. `plus`: one byte for each 4 KiB page (Plus, section IV-A). `plus2`: two bytes
//! for each flash page, since collection reads flash pages: with pages of 32 KiB, eight times fewer counts of
//! twice the size. A page whose grains are all invalid need not be read; for other pages, the records of
//! [`crate::hash::records`] say which grains are invalid.

use std::hint::black_box;

use strength_reduce::StrengthReducedU64;

use super::Validity;
use crate::hash::layout::{Grain, Layout};

/// One count for a fixed number of grains.
pub struct Counts {
    invalid: Vec<u16>,
    counted_grains: StrengthReducedU64,
    superblock_counts: usize,
    /// DRAM for each count in the drive, bytes.
    count_bytes: u64,
}

/// A byte for every read unit of an empty drive.
pub fn by_unit(layout: &Layout) -> Box<dyn Validity> {
    Box::new(Counts::new(layout, layout.unit_grains, 1))
}

/// Two bytes for every flash page of an empty drive.
pub fn by_page(layout: &Layout) -> Box<dyn Validity> {
    Box::new(Counts::new(layout, layout.page_grains, 2))
}

impl Counts {
    fn new(layout: &Layout, counted_grains: u32, count_bytes: u64) -> Counts {
        assert!(u64::from(counted_grains) < 1 << (8 * count_bytes), "a count of all grains fits");
        Counts {
            invalid: vec![0; (layout.grains() / u64::from(counted_grains)) as usize],
            counted_grains: StrengthReducedU64::new(counted_grains.into()),
            superblock_counts: (layout.superblock_grains / counted_grains) as usize,
            count_bytes,
        }
    }

    /// Calls `on` with every count that covers any of the `grains` grains from `at` on, and how many of them
    /// it covers.
    #[inline]
    fn parts(counted_grains: StrengthReducedU64, at: Grain, grains: u32, mut on: impl FnMut(usize, u64)) {
        let (mut here, end) = (at.0, at.0 + u64::from(grains));
        let mut index = here / counted_grains;
        while here < end {
            let stop = end.min((index + 1) * counted_grains.get());
            on(index as usize, stop - here);
            here = stop;
            index += 1;
        }
    }
}

impl Validity for Counts {
    fn write(&mut self, _at: Grain, _grains: u32) {}

    fn invalidate(&mut self, at: Grain, grains: u32) -> bool {
        let counted_grains = self.counted_grains.get();
        let mut any_full = false;
        Counts::parts(self.counted_grains, at, grains, |index, part| {
            let count = &mut self.invalid[index];
            *count += part as u16;
            assert!(u64::from(*count) <= counted_grains, "a grain of count {index} became invalid twice");
            any_full |= u64::from(*count) == counted_grains;
        });
        any_full
    }

    fn can_invalidate(&self, at: Grain, grains: u32) -> bool {
        let mut fits = true;
        Counts::parts(self.counted_grains, at, grains, |index, part| {
            fits &= u64::from(self.invalid[index]) + part <= self.counted_grains.get();
        });
        fits
    }

    fn is_dead(&self, at: Grain, grains: u32) -> bool {
        let first = (at.0 / self.counted_grains) as usize;
        let counts = (u64::from(grains) / self.counted_grains) as usize;
        // For a part of the grains of a count nothing is known.
        counts > 0
            && self.invalid[first..first + counts]
                .iter()
                .all(|count| u64::from(*count) == self.counted_grains.get())
    }

    fn meet(&self, at: Grain) {
        black_box(self.invalid[(at.0 / self.counted_grains) as usize]);
    }

    fn is_valid(&self, _at: Grain) -> Option<bool> {
        None
    }

    fn reset(&mut self, superblock: u32) {
        let first = superblock as usize * self.superblock_counts;
        self.invalid[first..first + self.superblock_counts].fill(0);
    }

    fn dram_bytes(&self) -> u64 {
        self.count_bytes * self.invalid.len() as u64
    }
}
