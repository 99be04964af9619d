//! Drives of 2 MiB with every engine and policy, and a host of one: the start of tests of power, images and
//! records.

use std::path::Path;
use std::rc::Rc;

use kvdrive_device::engines::EngineRow;
use kvdrive_device::{DriveConfig, MediaConfig};
use kvdrive_engines::EngineSettings;
use kvdrive_engines::anykey::AnyKeyConfig;
use kvdrive_engines::hash::{HashConfig, SCHEMES};
use kvdrive_engines::lsm::compaction::COMPACTIONS;
use kvdrive_engines::lsm::layout::LAYOUTS;
use kvdrive_engines::lsm::{GcConfig, IndexConfig, LsmConfig};
use kvdrive_engines::packing::{PACKINGS, PackingConfig, PackingCosts, PackingRow};
use kvdrive_engines::page_buffer::{BufferConfig, Eviction};
use kvdrive_engines::stored::StoredConfig;
use kvdrive_flash::FlashConfig;
use kvdrive_flash::ftl::FtlConfig;
use kvdrive_host::modelled::{Driver, Host};
use kvdrive_link::transfer::{TransferConfig, method};
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::Key;
use kvdrive_sim::{Resource, Sim};

use super::rig;
use super::small_hash::{flash_config, hash_config};

/// 2 MiB of flash, on a file so that records are kept; it collects, flushes and merges within some hundred
/// stores.
pub fn config(engine: &str, path: Option<&Path>) -> DriveConfig {
    DriveConfig {
        engine: engine.into(),
        controller: rig::controller_config(rig::on_contexts(2)),
        flash: FlashConfig { dies_per_channel: 1, ..flash_config() },
        engines: EngineSettings {
            ftl: FtlConfig {
                over_provisioning: 0.2,
                victim: "greedy".into(),
                gc_low_blocks: 2,
                placement_dies: 2,
            },
            lsm: LsmConfig {
                buffer: BufferConfig { entries: 12, eviction: Eviction::Wait },
                packing: PackingConfig {
                    policy: "backfill".into(),
                    dlt_entries: 8,
                    slots_cross_pages: false,
                    costs: PackingCosts::default(),
                    own: None,
                },
                index: IndexConfig {
                    layout: "sound".into(),
                    memtable_entries: 32,
                    rings: vec![3, 3, 4, 64],
                    ..IndexConfig::default()
                },
                gc: GcConfig {
                    enabled: true,
                    segment_pages: 8,
                    free_segments_low: 6,
                    victims: 2,
                    ahead_segments: 2,
                    free_segments_reserved: 3,
                },
            },
            anykey: AnyKeyConfig {
                group_pages: 4,
                levels: 3,
                memtable_entries: 32,
                log_percent: 20,
                ..AnyKeyConfig::default()
            },
            stored: StoredConfig { operations_bytes: 65_536, ..StoredConfig::default() },
            hash: HashConfig { grain_bytes: 0, discard_invalid: false, ..hash_config(SCHEMES[0]) },
        },
        protected_bytes: 9 << 20,
        media: MediaConfig {
            kind: "file".into(),
            path: path.map(Path::to_owned),
            sync: false,
            read_only: false,
            // Fewer pages than the drives have.
            cache_bytes: 32 << 10,
        },
        seed: 1,
    }
}

/// The drives with this engine: every packing policy, and in turn the other options of an LSM drive.
pub fn variants(row: &EngineRow) -> Vec<DriveConfig> {
    let base = config(row.name, None);
    if !row.sections.contains(&"packing") {
        return vec![base];
    }
    let variant = |(turn, packing): (usize, &PackingRow)| {
        let mut config = base.clone();
        config.engines.lsm.packing.policy = packing.name.into();
        config.engines.lsm.index.layout = LAYOUTS[turn % LAYOUTS.len()].name.into();
        config.engines.lsm.index.compaction = COMPACTIONS[turn / 2 % COMPACTIONS.len()].name.into();
        if turn % 2 == 1 {
            (config.engines.lsm.index.dram_bytes, config.engines.lsm.index.pinned_levels) = (20_000, 2);
        }
        config.engines.anykey.write_back = turn % 2 == 1;
        config.engines.lsm.buffer.eviction = [Eviction::Wait, Eviction::Overlap][turn % 3 % 2];
        config
    };
    // Packing is the same code in all of them, and `lsm` has the layouts.
    let packings = if row.name == "lsm" { PACKINGS.len() } else { 2 };
    PACKINGS.iter().enumerate().take(packings).map(variant).collect()
}

pub fn in_memory() -> MediaConfig {
    MediaConfig { kind: "ram".into(), path: None, ..MediaConfig::default() }
}

/// The keys of the drives.
pub fn key(number: u64) -> Key {
    Key::from_u32_be(number as u32)
}

/// A host of the drive that `link` connects.
pub fn connect(sim: &Sim, link: &Rc<Link>, memory: &Rc<LocalMemory>) -> Driver {
    let core = Rc::new(Resource::new(sim, "host", 1));
    let host = Host::connect(link.clone(), memory.clone(), core, rig::HOST_COSTS).expect("Identify works");
    let transfer = TransferConfig {
        method: "prp".into(),
        threshold1_bytes: 0,
        threshold2_bytes: 0,
        alpha: 1.0,
        beta: 1.0,
        own: None,
    };
    Driver::connect(&host, method(&transfer).expect("a row"), 16, 1).expect("a queue pair")
}
