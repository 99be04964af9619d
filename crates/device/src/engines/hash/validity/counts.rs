//! The per-page invalid counts of `plus`: one byte for a 4 KiB page, its invalid grains (Plus, section IV-A). A page
//! whose grains are all counted need not be read; which grains of another page are invalid stands in the records of
//! [`crate::engines::hash::records`].

use super::Validity;
use crate::engines::hash::layout::{Grain, Layout};

/// One count a read unit.
pub struct Counts {
    invalid: Vec<u8>,
    unit_grains: u64,
    superblock_units: usize,
}

/// The counts of an empty drive.
pub fn build(layout: &Layout) -> Box<dyn Validity> {
    let units = layout.grains() / u64::from(layout.unit_grains);
    Box::new(Counts {
        invalid: vec![0; units as usize],
        unit_grains: layout.unit_grains.into(),
        superblock_units: (layout.superblock_grains / layout.unit_grains) as usize,
    })
}

impl Validity for Counts {
    fn write(&mut self, _at: Grain, _grains: u32) {}

    fn invalidate(&mut self, at: Grain, grains: u32) {
        let (mut here, end) = (at.0, at.0 + u64::from(grains));
        while here < end {
            let unit = here / self.unit_grains;
            let stop = end.min((unit + 1) * self.unit_grains);
            let count = &mut self.invalid[unit as usize];
            *count += (stop - here) as u8;
            assert!(u64::from(*count) <= self.unit_grains, "a grain of unit {unit} became invalid twice");
            here = stop;
        }
    }

    fn is_dead(&self, at: Grain, grains: u32) -> bool {
        let first = (at.0 / self.unit_grains) as usize;
        let units = (u64::from(grains) / self.unit_grains) as usize;
        self.invalid[first..first + units].iter().all(|count| u64::from(*count) == self.unit_grains)
    }

    fn is_valid(&self, _at: Grain) -> Option<bool> {
        None
    }

    fn reset(&mut self, superblock: u32) {
        let first = superblock as usize * self.superblock_units;
        self.invalid[first..first + self.superblock_units].fill(0);
    }

    fn dram_bytes(&self) -> u64 {
        self.invalid.len() as u64
    }
}
