//! Checks a configuration against the drive: the hash FTL it names, its keys against the flash, and the
//! amount of power-protected memory.

use kvdrive_declare::image_keys;
use kvdrive_flash::power::PowerOnError;

use super::config::HashConfig;
use super::layout::Layout;
use super::protected::Bounds;
use super::scheme::{SchemeRow, scheme};
use crate::config::EngineConfig;

/// The hash FTL of a drive, and its configuration.
///
/// Errors: the name of another engine, or a key that is not allowed.
pub fn of_config(config: &EngineConfig) -> Result<(&'static SchemeRow, HashConfig), PowerOnError> {
    let scheme = scheme(&config.name)
        .ok_or_else(|| PowerOnError::Config(format!("engine.name: no hash FTL {:?}", config.name)))?;
    if !config.flash.enabled {
        let line = format!("nand.enabled: false; engine {} keeps its pairs on flash only", config.name);
        return Err(PowerOnError::Config(line));
    }
    let mut hash = config.engines.hash.of(scheme);
    hash.costs.copy = config.copy;
    hash.check(&config.flash.geometry())
        .map_err(|(key, what)| PowerOnError::Config(format!("hash.{key}: {what}")))?;
    Ok((scheme, hash))
}

/// Settings that two drives with this hash FTL must have in common.
///
/// # Panics
/// If the configuration names another engine.
pub fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
    image_keys(&config.engines.hash.of(scheme(&config.name).expect("the configuration was checked")))
}

/// Checks that `config` describes a hash engine and has the power-protected memory it needs.
///
/// # Errors
/// The key at fault.
pub fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
    let (scheme, hash) = of_config(config)?;
    let layout = Layout::new(config.flash.geometry(), hash.grain_bytes, hash.unit_bytes);
    let records_bytes = scheme.records.map_or(0, |form| form.buffer_bytes(&layout));
    Bounds::new(&hash, &layout, &*(scheme.format)(&layout), records_bytes, config.protected_bytes)
        .map(drop)
        .map_err(|what| PowerOnError::Config(format!("power.protected_bytes: {what}")))
}
