//! What an engine is built from.

use kvdrive_flash::power::{Journal, Owner};
use kvdrive_flash::{FlashConfig, FlashPort};
use kvdrive_sim::Sim;

use crate::firmware::{CopyCosts, Cores};
use crate::table::EngineSettings;

/// The part of a drive's configuration that engines read.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Name of the engine.
    pub name: String,
    /// Flash.
    pub flash: FlashConfig,
    /// Settings of the engine, and of the others.
    pub engines: EngineSettings,
    /// Commands that are worked on at once: contexts, or I/O threads.
    pub runners: u32,
    /// Costs of copying.
    pub copy: CopyCosts,
    /// Power-protected memory, bytes. Needing more is a broken invariant.
    pub protected_bytes: u64,
}

/// What an engine is built from.
pub struct Parts {
    /// The executor.
    pub sim: Sim,
    /// Firmware cores.
    pub cores: Cores,
    /// The flash, with its present content.
    pub flash: FlashPort,
    /// Where changes of protected state go.
    pub journal: Journal,
    /// The owner of the protected image: the drive and its settings.
    pub owner: Owner,
    /// The configuration.
    pub config: EngineConfig,
}
