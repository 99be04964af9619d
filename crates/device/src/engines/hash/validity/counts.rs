//! Invalid grains, counted. `plus`: one byte for a 4 KiB page (Plus, section IV-A). `plus2`: two bytes for a
//! flash page, since collection reads flash pages; eight times fewer counts of twice the size. A page whose
//! grains are all counted need not be read; which grains of another page are invalid stands in the records of
//! [`crate::engines::hash::records`].

use std::hint::black_box;

use strength_reduce::StrengthReducedU64;

use super::Validity;
use crate::engines::hash::layout::{Grain, Layout};

/// One count for so many grains.
pub struct Counts {
    invalid: Vec<u16>,
    counted_grains: StrengthReducedU64,
    superblock_counts: usize,
    /// DRAM of a count in the drive.
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
}

impl Validity for Counts {
    fn write(&mut self, _at: Grain, _grains: u32) {}

    fn invalidate(&mut self, at: Grain, grains: u32) -> bool {
        let counted_grains = self.counted_grains.get();
        let (mut here, end) = (at.0, at.0 + u64::from(grains));
        let mut index = here / self.counted_grains;
        let mut any_full = false;
        while here < end {
            let stop = end.min((index + 1) * counted_grains);
            let count = &mut self.invalid[index as usize];
            *count += (stop - here) as u16;
            assert!(u64::from(*count) <= counted_grains, "a grain of count {index} became invalid twice");
            any_full |= u64::from(*count) == counted_grains;
            here = stop;
            index += 1;
        }
        any_full
    }

    fn is_dead(&self, at: Grain, grains: u32) -> bool {
        let first = (at.0 / self.counted_grains) as usize;
        let counts = (u64::from(grains) / self.counted_grains) as usize;
        self.invalid[first..first + counts].iter().all(|count| u64::from(*count) == self.counted_grains.get())
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
