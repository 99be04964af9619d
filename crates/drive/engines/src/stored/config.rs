//! The configuration of a store in a drive.

use kvdrive_store::{StepCosts, StoreOptions};

use super::cpu::GUESSED_COSTS_PS;

/// The configuration of a store in a drive.
#[derive(Clone, Debug)]
pub struct StoredConfig {
    /// Options of every store. Those that may be 0 follow the drive ([`super::options`]).
    pub options: StoreOptions,
    /// Most bytes of operations that a store may not have on its pages; 0: half of the protected memory that
    /// the bits of trimmed pages leave.
    pub operations_bytes: u64,
    /// Times of steps on a firmware core.
    pub costs_ps: StepCosts,
}

impl Default for StoredConfig {
    fn default() -> StoredConfig {
        let mut options = StoreOptions::default();
        (options.hashlog.block_bytes, options.hashlog.segment_bytes) = (0, 0);
        let lsmtree = &mut options.lsmtree;
        lsmtree.write_buffer_size = 0;
        (lsmtree.max_bytes_for_level_base, lsmtree.target_file_size_base) = (0, 0);
        StoredConfig { options, operations_bytes: 0, costs_ps: GUESSED_COSTS_PS }
    }
}
