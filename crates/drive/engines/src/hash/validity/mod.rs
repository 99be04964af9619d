//! Tracking of valid grains, so that garbage collection can skip the others. It needs DRAM of the drive.

pub mod bitmap;
pub mod counts;

use super::layout::{Grain, Layout};

/// Knowledge of valid grains.
pub trait Validity {
    /// Grains were written.
    fn write(&mut self, at: Grain, grains: u32);
    /// Grains hold nothing any more, or never did (padding). `false`: no further page is now known to be
    /// dead.
    fn invalidate(&mut self, at: Grain, grains: u32) -> bool;
    /// Can this many grains from `at` on become invalid? Recovery checks that, since in pages from outside
    /// some may be invalid already.
    fn can_invalidate(&self, _at: Grain, _grains: u32) -> bool {
        true
    }
    /// Is it certain that nothing in these grains (a whole page or read unit) is valid?
    fn is_dead(&self, at: Grain, grains: u32) -> bool;
    /// Reads the entry of a grain, as [`std::hint::black_box`] does, to load it into the machine's caches.
    fn meet(&self, at: Grain);
    /// Whether the pair or section at `at` is valid, if that is known for each grain.
    fn is_valid(&self, at: Grain) -> Option<bool>;
    /// A superblock was erased.
    fn reset(&mut self, superblock: u32);
    /// DRAM it takes in the drive, bytes.
    fn dram_bytes(&self) -> u64;
}

/// Builds it for a drive.
pub type BuildValidity = fn(&Layout) -> Box<dyn Validity>;
