//! A store's configuration on a given drive: options that follow from the drive, and how the protected memory is
//! divided.

use kvdrive_declare::image_keys;
use kvdrive_flash::ftl::away::AwayPages;
use kvdrive_flash::ftl::logical_pages;
use kvdrive_store::{StoreOptions, StoreRow, most_mark_bytes, store_row};

use super::image::OPERATION_BYTES;
use crate::config::EngineConfig;

pub(super) fn pages_of(config: &EngineConfig) -> u32 {
    logical_pages(&config.flash.geometry(), config.engines.ftl.over_provisioning)
}

/// The options of a drive's store, with those filled in that follow from the drive.
pub fn options(config: &EngineConfig) -> StoreOptions {
    let mut options = config.engines.stored.options.clone();
    let page_bytes = config.flash.geometry().page_bytes;
    (row(config).fit)(&mut options, page_bytes, pages_of(config).into(), threads(config));
    options
}

/// Settings that two drives with this store must have in common.
pub fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
    let mut settings = image_keys(&config.engines.ftl);
    settings.extend((row(config).layout)(&options(config)));
    settings
}

pub(super) fn row(config: &EngineConfig) -> &'static StoreRow {
    store_row(&config.name).expect("an engine that is a store has its name")
}

/// Threads that may be inside the store: a context each, and loading.
pub(super) fn threads(config: &EngineConfig) -> u32 {
    config.runners + 1
}

/// How the protected memory is divided, bytes.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    /// Values that arrive.
    pub staged: u64,
    /// Operations that the store may not have on its pages.
    pub operations: u64,
}

impl Shares {
    /// The shares for this configuration. Error: a line that says which setting is too small.
    pub fn of(config: &EngineConfig) -> Result<Shares, String> {
        /// Room for two operations with values of 4 KiB.
        const LEAST: u64 = 2 * (4096 + OPERATION_BYTES);
        let has = config.protected_bytes;
        let trimmed = AwayPages::bytes(pages_of(config)) as u64;
        let besides = trimmed + most_mark_bytes(threads(config));
        let half = has.saturating_sub(besides) / 2;
        if half < LEAST {
            let needed = besides + 2 * LEAST;
            return Err(format!("power.protected_bytes: {has}; a store needs {needed} on this drive"));
        }
        match config.engines.stored.operations_bytes {
            0 => Ok(Shares { staged: half, operations: half }),
            bytes if (LEAST..=half).contains(&bytes) => Ok(Shares { staged: half, operations: bytes }),
            bytes => Err(format!(
                "store.operations_bytes: {bytes}; allowed with power.protected_bytes = {has}: 0, {LEAST} to {half}"
            )),
        }
    }

    /// The longest value: half of the staging memory, so that an unfinished value leaves room for values of other
    /// commands.
    pub fn max_value_bytes(&self) -> u32 {
        let most = (self.staged / 2).min(self.operations.saturating_sub(OPERATION_BYTES));
        most.min(u64::from(kvdrive_store::MAX_VALUE_BYTES)) as u32
    }
}
