//! A configuration held against the drive: the segments and the value log that it makes, and whether there is
//! power-protected memory enough.

use kvdrive_declare::image_keys;
use kvdrive_flash::power::PowerOnError;

use crate::config::EngineConfig;
pub(super) use crate::lsm::fit::shape_of_config;
use crate::lsm::fit::{logical_pages, packing, pool};
use crate::packing::SLOT_BYTES;
use crate::value_log::LogShape;

/// Settings that two drives with this engine must have in common.
pub fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
    let mut settings = packing(config).image_settings();
    let own = [
        image_keys(&config.engines.lsm.buffer),
        image_keys(&config.engines.anykey),
        image_keys(&config.engines.lsm.gc),
    ];
    settings.extend(own.concat());
    settings.extend(image_keys(&config.engines.ftl));
    settings
}

/// Can there be a drive like this with the engine on it? If not, a line that begins with the key to blame.
pub fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
    let fail = |line| Err(PowerOnError::Config(line));
    let geometry = config.flash.geometry();
    config.engines.lsm.gc.check(&geometry).or_else(|line| fail(format!("gc.{line}")))?;
    config.engines.ftl.check(&geometry).or_else(|error| fail(format!("ftl.{error}")))?;
    if !config.flash.enabled {
        return fail("nand.enabled: false; engine anykey keeps its pairs on flash only".into());
    }
    let page_bytes = geometry.page_bytes;
    if !page_bytes.is_power_of_two() || !(512.max(SLOT_BYTES)..=1 << 16).contains(&page_bytes) {
        return fail(format!(
            "flash.page_bytes: {page_bytes}; allowed with engine.name = \"anykey\": a power of two, {} to {}",
            512.max(SLOT_BYTES),
            1 << 16
        ));
    }
    let settings = &config.engines.anykey;
    if settings.group_pages < 4 || settings.group_pages > 1024 {
        return fail(format!("anykey.group_pages: {} is not between 4 and 1024", settings.group_pages));
    }
    if !(2..=8).contains(&settings.levels) {
        return fail(format!("anykey.levels: {} is not between 2 and 8", settings.levels));
    }
    if !(16..=1 << 24).contains(&settings.memtable_entries) {
        return fail(format!(
            "anykey.memtable_entries: {} is not between 16 and {}",
            settings.memtable_entries,
            1 << 24
        ));
    }
    let shape = shape_of_config(config)?;
    let pool = pool(config, logical_pages(config), None);
    let reserve = pool.reserve();
    let least = reserve.index_segments + reserve.gc_segments + 2;
    if pool.segments() < least {
        let (pages, segments) = (pool.segment_pages(), pool.segments());
        return fail(format!(
            "gc.segment_pages: {pages} pages make {segments} segments of the drive; with this index it needs {least}"
        ));
    }
    groups_in_protected_bytes(config, &shape).map(drop)
}

/// Checks that all state outside flash fits the power-protected memory. Returns how many groups can be listed there.
pub fn groups_in_protected_bytes(config: &EngineConfig, shape: &LogShape) -> Result<u32, PowerOnError> {
    /// Key, address, length, sequence number and flags of a memtable record, and its place in the image.
    const RECORD_BYTES: u64 = 40;
    /// Id and level of a group, and the key up to which it has gone on.
    const GROUP_BYTES: u64 = 8;
    /// Least number of groups that there must be room for.
    const LEAST_GROUPS: u64 = 1024;
    let memtables = 2 * u64::from(config.engines.anykey.memtable_entries) * RECORD_BYTES;
    let needed =
        shape.protected_bytes(config.engines.lsm.buffer.entries) + memtables + LEAST_GROUPS * GROUP_BYTES;
    let Some(left) = config.protected_bytes.checked_sub(needed) else {
        let line = format!(
            "power.protected_bytes: {}; page buffer, memtables, segments of the value log and {LEAST_GROUPS} groups need \
             more: set power.protected_bytes to at least {needed}",
            config.protected_bytes
        );
        return Err(PowerOnError::Config(line));
    };
    Ok((LEAST_GROUPS + left / GROUP_BYTES).try_into().unwrap_or(u32::MAX))
}
