//! The typed configuration: one struct a section of the document. Most are those of the rooms that look at
//! them, and what a key means stands there; here are the sections of the lab itself. Sources and defaults
//! stand in `profiles/`.

use kvdrive_device::MediaConfig;
use kvdrive_device::controller::ControllerConfig;
use kvdrive_engines::hash::HashConfig;
use kvdrive_engines::lsm::{GcConfig, IndexConfig};
use kvdrive_engines::packing::PackingConfig;
use kvdrive_engines::page_buffer::BufferConfig;
use kvdrive_flash::FlashConfig;
use kvdrive_flash::ftl::FtlConfig;
use kvdrive_host::modelled::HostCosts;
use kvdrive_link::LinkConfig;
use kvdrive_link::transfer::TransferConfig;
use kvdrive_store::btree::BtreeOptions;
use kvdrive_store::hashlog::HashlogOptions;
use serde::Deserialize;

use super::{ConfigError, rules};
use crate::workload::WorkloadParams;

/// Everything a run depends on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// PCIe.
    pub link: LinkConfig,
    /// The machine that asks.
    pub host: Host,
    /// Index and value placement.
    pub engine: Engine,
    /// Firmware and its cores.
    pub controller: ControllerConfig,
    /// Power-protected NAND page buffer.
    pub buffer: BufferConfig,
    /// Where values land in a page.
    pub packing: PackingConfig,
    /// The index.
    pub lsm: IndexConfig,
    /// NAND.
    pub flash: FlashConfig,
    /// Flash translation.
    pub ftl: FtlConfig,
    /// Garbage collection of the value log.
    pub gc: GcConfig,
    /// Engines that are hash FTLs.
    pub hash: HashConfig,
    /// What survives a power cut.
    pub power: Power,
    /// Where pages are kept.
    pub media: MediaConfig,
    /// The run itself.
    pub run: Run,
    /// Engines that are stores over pages.
    pub store: Store,
    /// The store `hashlog`.
    pub hashlog: HashlogOptions,
    /// The store `btree`.
    pub btree: BtreeOptions,
    /// What is asked of the drive.
    pub workload: WorkloadParams,
}

/// Keys that another room looks at than the one whose section users find them in: section and key, and the
/// section and field that have the value here.
const ELSEWHERE: &[[&str; 4]] = &[
    ["controller", "dma_granularity_bytes", "link", "dma_granularity_bytes"],
    ["controller", "index_insert_ns", "lsm", "memtable_insert_ns"],
    ["controller", "index_probe_ns", "lsm", "index_probe_ns"],
    ["lsm", "iterators", "controller", "iterators"],
    ["nand", "enabled", "flash", "enabled"],
];

impl Config {
    /// The configuration with these values: those of a document, or of a report.
    ///
    /// # Errors
    /// A key is missing or unknown, or its value cannot be.
    pub fn of_values(mut values: serde_json::Value) -> Result<Config, ConfigError> {
        for [section, key, other, field] in ELSEWHERE {
            let value = values.get_mut(section).and_then(|keys| keys.as_object_mut()?.remove(*key));
            if let (Some(value), Some(keys)) =
                (value, values.get_mut(other).and_then(|keys| keys.as_object_mut()))
            {
                keys.insert((*field).to_owned(), value);
            }
        }
        if let Some(sections) = values.as_object_mut() {
            sections.retain(|_, keys| keys.as_object().is_none_or(|keys| !keys.is_empty()));
        }
        serde_json::from_value(values).map_err(|error| {
            let line = error.to_string();
            // A condition between keys of one section says which it blames.
            match line.split_once(": ") {
                Some((key, problem)) if rules::rule(key).is_some() => ConfigError::new(key, problem),
                _ => ConfigError::new("configuration", line),
            }
        })
    }
}

/// `[host]`: the machine that asks, and its driver.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Host {
    /// Cores.
    pub cores: u32,
    /// What its work on commands costs.
    #[serde(flatten)]
    pub costs: HostCosts,
    /// Work between two operations.
    pub think_ns: u64,
    /// The store that runs on the host; `none` where the drive takes pairs.
    pub store: String,
    /// Threads, with a core and a queue pair each; 0: `cores` are shared, and there are `queues`.
    pub threads: u32,
    /// Queue pairs.
    pub queues: u32,
    /// Entries of a queue.
    pub queue_entries: u32,
    /// Operations under way at once, over all queues.
    pub depth: u32,
    /// Transfer method.
    #[serde(flatten)]
    pub transfer: TransferConfig,
}

/// `[engine]`: index and value placement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Name in the device's table of engines.
    pub name: String,
}

/// `[power]`: what survives a power cut.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Protected bytes.
    pub protected_bytes: u64,
}

/// `[run]`: the run itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Seed of every random stream.
    pub seed: u64,
    /// `virtual` or `wall`.
    pub clock: String,
}

/// `[store]`: engines that are stores over pages. Steps of work, in picoseconds of a firmware core.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Most bytes of operations that are not on pages; 0: half of what the protected memory has for them.
    pub operations_bytes: u64,
    /// A look into the hash table of every pair.
    pub probe_ps: u64,
    /// An entry is put into it.
    pub insert_ps: u64,
    /// A key is searched in the memtables.
    pub memtable_search_ps: u64,
    /// A pair is put into a memtable.
    pub memtable_insert_ps: u64,
    /// The row cache is asked about a key of a table.
    pub row_probe_ps: u64,
    /// A pair is put into the row cache.
    pub row_insert_ps: u64,
    /// Two keys are compared.
    pub compare_ps: u64,
    /// One byte is copied.
    pub copy_byte_ps: u64,
    /// One byte is run through a checksum.
    pub checksum_byte_ps: u64,
    /// A filter is asked about a key.
    pub bloom_check_ps: u64,
    /// A key's place in a table's index is searched.
    pub index_search_ps: u64,
    /// A key is searched in a block or page.
    pub block_search_ps: u64,
    /// An entry passes through a merge or scan.
    pub merge_entry_ps: u64,
    /// A key is searched in a node.
    pub node_search_ps: u64,
    /// A pair is put into a node.
    pub node_insert_ps: u64,
    /// A node is copied.
    pub shadow_ps: u64,
    /// A node becomes two.
    pub split_ps: u64,
}
