//! A configuration held against the drive: the segments and the value log that it makes, and whether there is
//! power-protected memory enough.

use kvdrive_declare::image_keys;
use kvdrive_flash::ftl::{Ftl, Lpa};
use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::timing::{self, ProgramTimes};

use super::config::LsmConfig;
use super::layout::layout_row;
use crate::config::EngineConfig;
use crate::packing::{PackingConfig, PackingCosts, SLOT_BYTES};
use crate::page_buffer::Eviction;
use crate::value_log::{LogShape, Reserve, SegmentPool};

/// Bytes of power-protected memory for the id and level of a table.
pub(super) const TABLE_BYTES: u64 = 5;

/// Segments of the logical space; pages after the last whole one are not used.
pub(crate) fn pool(config: &EngineConfig, logical_pages: u32, ftl: Option<Ftl>) -> SegmentPool {
    let gc = &config.engines.lsm.gc;
    let gc_segments = 1.min(gc.free_segments_reserved);
    let reserve = Reserve { index_segments: gc.free_segments_reserved - gc_segments, gc_segments };
    SegmentPool::new(logical_pages, gc.segment_pages, reserve, move |lpas| {
        if let Some(ftl) = &ftl {
            lpas.for_each(|lpa| ftl.trim(Lpa(lpa)));
        }
    })
}

pub(crate) fn logical_pages(config: &EngineConfig) -> u32 {
    kvdrive_flash::ftl::logical_pages(&config.flash.geometry(), config.engines.ftl.over_provisioning)
}

/// The packing policy with the costs that it compares. With `buffer.eviction = wait` a store that opens a page waits for
/// a program. Otherwise programs run side by side, and the cost of a page is its share of the resource that limits them.
pub(crate) fn packing(config: &EngineConfig) -> PackingConfig {
    // An unknown name is refused where the drive is built.
    let timing = timing::row(&config.flash.timing.name);
    let ProgramTimes { alone_ns, share_ns } =
        timing.map(|row| (row.program)(&config.flash)).unwrap_or_default();
    let page_ns = match config.engines.lsm.buffer.eviction {
        Eviction::Wait => alone_ns,
        Eviction::Overlap => share_ns,
    };
    let costs = PackingCosts { copy: config.copy, page_ns };
    PackingConfig { costs, ..config.engines.lsm.packing.clone() }
}

/// The shape of the value log that `config` describes.
pub(crate) fn shape(config: &EngineConfig, pool: &SegmentPool) -> Result<LogShape, PowerOnError> {
    LogShape::new(&packing(config), pool, config.flash.page_bytes, config.engines.lsm.buffer.entries)
        .map_err(PowerOnError::Config)
}

/// As [`shape`], without a drive.
pub(crate) fn shape_of_config(config: &EngineConfig) -> Result<LogShape, PowerOnError> {
    shape(config, &pool(config, logical_pages(config), None))
}

/// Settings that two drives with this engine must have in common.
pub fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
    let LsmConfig { packing: _, index, gc, buffer } = &config.engines.lsm;
    let mut settings = packing(config).image_settings();
    settings.extend(
        [image_keys(buffer), image_keys(index), image_keys(gc), image_keys(&config.engines.ftl)].concat(),
    );
    settings
}

/// Can there be a drive like this with the engine on it? If not, a line that begins with the key to blame.
pub fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
    let fail = |line| Err(PowerOnError::Config(line));
    let index = &config.engines.lsm.index;
    index.check().or_else(|line| fail(format!("lsm.{line}")))?;
    let geometry = config.flash.geometry();
    config.engines.lsm.gc.check(&geometry).or_else(|line| fail(format!("gc.{line}")))?;
    config.engines.ftl.check(&geometry).or_else(|error| fail(format!("ftl.{error}")))?;
    // Packing masks addresses; tables count the bytes of a page in 16 bits.
    let page_bytes = geometry.page_bytes;
    if !page_bytes.is_power_of_two() || !(SLOT_BYTES..=1 << 16).contains(&page_bytes) {
        let allowed = format!("a power of two, {SLOT_BYTES} to {}", 1 << 16);
        return fail(format!(
            "flash.page_bytes: {page_bytes}; allowed with engine.name = \"lsm\": {allowed}"
        ));
    }
    let bytes = u64::from(logical_pages(config)) * u64::from(page_bytes);
    match layout_row(&index.layout) {
        Some(layout) if bytes > layout.reach_bytes => fail(format!(
            "lsm.layout: \"{}\" reaches {} B; the drive has {bytes} B of logical pages",
            layout.name, layout.reach_bytes
        )),
        _ => tables_in_protected_bytes(config, &shape_of_config(config)?).map(drop),
    }
}

/// Checks that all state outside flash fits the power-protected memory. Returns how many tables can be listed
/// there while no key is longer than 16 B.
pub(super) fn tables_in_protected_bytes(
    config: &EngineConfig,
    shape: &LogShape,
) -> Result<u32, PowerOnError> {
    /// Key of 16 B, address, length, sequence number and flags of a memtable record, and its place in the image.
    const RECORD_BYTES: u64 = 40;
    /// Least number of tables that there must be room for.
    const LEAST_TABLES: u64 = 1024;
    let memtables = 2 * u64::from(config.engines.lsm.index.memtable_entries) * RECORD_BYTES;
    let needed =
        shape.protected_bytes(config.engines.lsm.buffer.entries) + memtables + LEAST_TABLES * TABLE_BYTES;
    let Some(left) = config.protected_bytes.checked_sub(needed) else {
        let line = format!(
            "power.protected_bytes: {}; page buffer, memtables, segments of the value log and {LEAST_TABLES} tables need \
             more: set power.protected_bytes to at least {needed}",
            config.protected_bytes
        );
        return Err(PowerOnError::Config(line));
    };
    Ok((LEAST_TABLES + left / TABLE_BYTES).try_into().unwrap_or(u32::MAX))
}
