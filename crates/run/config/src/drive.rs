//! Translates a configuration into that of the drive.

use kvdrive_device::DriveConfig;

use super::Config;

impl Config {
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
