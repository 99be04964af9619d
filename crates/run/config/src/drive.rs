//! Translates a configuration into the settings of each crate of the drive.

use kvdrive_device::DriveConfig;
use kvdrive_engines::hash::{HashConfig, HashCosts};
use kvdrive_engines::lsm::LsmConfig;
use kvdrive_engines::packing::{PackingConfig, PackingCosts};
use kvdrive_engines::page_buffer::Eviction;
use kvdrive_engines::stored;
use kvdrive_flash::timing::{self, ProgramTimes};
use kvdrive_store::StoreOptions;

use super::Config;

impl Config {
    /// The drive that the configuration describes.
    pub fn drive(&self) -> DriveConfig {
        let copy = self.controller.costs.copy;
        DriveConfig {
            engine: self.engine.name.clone(),
            controller: self.controller.clone(),
            flash: self.flash.clone(),
            ftl: self.ftl.clone(),
            lsm: LsmConfig {
                buffer: self.buffer.clone(),
                packing: PackingConfig { costs: packing_costs(self), ..self.packing.clone() },
                index: self.lsm.clone(),
                gc: self.gc.clone(),
            },
            hash: HashConfig { costs: HashCosts { copy, ..self.hash.costs }, ..self.hash.clone() },
            stored: self.stored(),
            protected_bytes: self.power.protected_bytes,
            media: self.media.clone(),
            seed: self.run.seed,
        }
    }

    /// The stores: their options, and the time of each of their steps.
    pub fn stored(&self) -> stored::StoredConfig {
        let Config { store, hashlog, lsmtree, btree, .. } = self;
        let (hashlog, lsmtree, btree) = (hashlog.clone(), lsmtree.clone(), btree.clone());
        stored::StoredConfig {
            options: StoreOptions { hashlog, lsmtree, btree },
            operations_bytes: store.operations_bytes,
            costs_ps: store.costs.0,
        }
    }
}

/// The costs that packing policies compare. With `wait` a store that opens a page waits for a program.
/// Otherwise programs run side by side, and the cost of a page is its share of the resource that limits them.
fn packing_costs(config: &Config) -> PackingCosts {
    let flash = &config.flash;
    // An unknown name is refused where the drive is built.
    let timing = timing::row(&flash.timing.name);
    let ProgramTimes { alone_ns, share_ns } = timing.map(|row| (row.program)(flash)).unwrap_or_default();
    PackingCosts {
        copy: config.controller.costs.copy,
        page_ns: match config.buffer.eviction {
            Eviction::Wait => alone_ns,
            Eviction::Overlap => share_ns,
        },
    }
}
