//! Which grains are valid: what garbage collection may skip. All of it is DRAM that a drive must have.

pub mod bitmap;
pub mod counts;

use super::layout::{Grain, Layout};

/// Knowledge of valid grains.
pub trait Validity {
    /// Grains were written.
    fn write(&mut self, at: Grain, grains: u32);
    /// Grains hold nothing any more, or never did (padding). `false`: no page is known to be dead that was
    /// not before.
    fn invalidate(&mut self, at: Grain, grains: u32) -> bool;
    /// Can so many grains from `at` on become invalid? Recovery asks: of pages that nobody wrote some may be
    /// already.
    fn can_invalidate(&self, _at: Grain, _grains: u32) -> bool {
        true
    }
    /// Is nothing in these grains, a whole page or read unit of them, valid for certain?
    fn is_dead(&self, at: Grain, grains: u32) -> bool;
    /// Looks at what there is about a grain, as [`std::hint::black_box`] does, for the machine's caches.
    fn meet(&self, at: Grain);
    /// Whether the pair or section at `at` is valid, where that is known grain by grain.
    fn is_valid(&self, at: Grain) -> Option<bool>;
    /// A superblock was erased.
    fn reset(&mut self, superblock: u32);
    /// DRAM it takes in the drive, bytes.
    fn dram_bytes(&self) -> u64;
}

/// Builds it for a drive.
pub type BuildValidity = fn(&Layout) -> Box<dyn Validity>;
