//! Translates a configuration into that of the drive.

use kvdrive_device::DriveConfig;
use kvdrive_device::engines::BLOCK;

use super::Config;

impl Config {
    /// Does the drive have blocks instead of pairs?
    pub fn has_blocks(&self) -> bool {
        self.engine.name == BLOCK.name
    }

    /// The drive that the configuration describes.
    pub fn drive(&self) -> DriveConfig {
        DriveConfig {
            engine: self.engine.name.clone(),
            controller: self.controller.clone(),
            flash: self.flash.clone(),
            engines: self.engines.clone(),
            protected_bytes: self.power.protected_bytes,
            media: self.media.clone(),
            seed: self.run.seed,
        }
    }
}
