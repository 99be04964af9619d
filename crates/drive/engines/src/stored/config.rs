//! The configuration of stores over pages, in a drive or on a host.

use kvdrive_declare::{Section, When};
use kvdrive_store::{StepSettings, StoreOptions, store_row};

use super::cpu::GUESSED_COSTS_PS;

/// The configuration of stores over pages: section `[store]`, and one for each store.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("store")]
pub struct StoredConfig {
    /// Most bytes of operations that are in protected memory and not yet on pages; 0: half of the protected memory that
    /// is available for them.
    #[setting(is = Integer(0, 1 << 40), shrinks, when = &[When::row("engine.name", has)])]
    pub operations_bytes: u64,
    /// What its steps cost.
    #[setting(part, when = &[TAKES_STEP])]
    pub costs: StepSettings,
    /// Options of every store. Those that may be 0 follow the drive ([`super::options`]).
    #[setting(part)]
    pub options: StoreOptions,
}

/// Condition: the store on the host has the section of the setting.
pub(super) const ON_HOST: When = When::row("host.store", has);

fn has(store: &str, key: &str) -> bool {
    let section = key.split('.').next().unwrap_or(key);
    store_row(store).is_some_and(|row| row.sections.contains(&section))
}

/// The store takes the step of the setting, in the drive or on the host.
const TAKES_STEP: When =
    When::Any(&[When::row("engine.name", takes_step), When::row("host.store", takes_step)]);

fn takes_step(store: &str, key: &str) -> bool {
    store_row(store).is_some_and(|row| row.steps.iter().any(|step| step.key() == key))
}

impl Default for StoredConfig {
    fn default() -> StoredConfig {
        let mut options = StoreOptions::default();
        (options.hashlog.block_bytes, options.hashlog.segment_bytes) = (0, 0);
        let lsmtree = &mut options.lsmtree;
        lsmtree.write_buffer_size = 0;
        (lsmtree.max_bytes_for_level_base, lsmtree.target_file_size_base) = (0, 0);
        StoredConfig { options, operations_bytes: 0, costs: StepSettings(GUESSED_COSTS_PS) }
    }
}
