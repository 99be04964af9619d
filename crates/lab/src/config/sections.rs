//! The typed configuration: one struct a section of the document. Most are those of the rooms that look at
//! them, and what a key means stands there; here are the sections of the lab itself. Sources and defaults
//! stand in `profiles/`.

use kvdrive_device::MediaConfig;
use kvdrive_device::config::ControllerConfig;
use kvdrive_engines::hash::HashConfig;
use kvdrive_engines::lsm::{GcConfig, IndexConfig};
use kvdrive_engines::packing::PackingConfig;
use kvdrive_engines::page_buffer::BufferConfig;
use kvdrive_flash::FlashConfig;
use kvdrive_flash::ftl::FtlConfig;
use kvdrive_host::modelled::HostCosts;
use kvdrive_host::modelled::saker::SakerCosts;
use kvdrive_link::LinkConfig;
use kvdrive_link::transfer::TransferConfig;
use kvdrive_saker::{BatchSize, CacheConfig, Containers};
use kvdrive_store::btree::BtreeOptions;
use kvdrive_store::hashlog::HashlogOptions;
use kvdrive_store::lsmtree::LsmtreeOptions;
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
    /// The store `lsmtree`.
    pub lsmtree: LsmtreeOptions,
    /// The store `btree`.
    pub btree: BtreeOptions,
    /// The layer in front of the driver.
    pub saker: Saker,
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

/// `[saker]`: what lies between application and driver, if it is there.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Saker {
    /// Is it there?
    pub enabled: bool,
    /// Most requests of a batch; 0: adaptive.
    pub batch: u32,
    /// Most bytes of a batch.
    pub container_bytes: u32,
    /// `own` or `shared`.
    pub containers: String,
    /// Batches of a client under way at once.
    pub in_flight: u32,
    /// Buckets of the table of what is pending.
    pub buckets: u32,
    /// Bytes of the read cache.
    pub cache_bytes: u64,
    /// Largest value that enters it.
    pub admit_bytes: u32,
    /// What leaves it.
    pub eviction: String,
    /// What its steps cost.
    #[serde(flatten)]
    pub costs: SakerCosts,
}

impl Saker {
    /// As SAKER itself has its settings. In model time nothing is gained by shards, and one makes what leaves the
    /// cache independent of hashes.
    pub fn settings(&self) -> kvdrive_saker::Config {
        kvdrive_saker::Config {
            batch: match self.batch {
                0 => BatchSize::Adaptive,
                requests => BatchSize::Fixed(requests),
            },
            container_bytes: self.container_bytes,
            containers: if self.containers == "shared" { Containers::Shared } else { Containers::Own },
            in_flight: self.in_flight,
            buckets: self.buckets,
            max_age_ns: 0,
            cache: CacheConfig {
                bytes: self.cache_bytes,
                admit_bytes: self.admit_bytes,
                eviction: self.eviction.clone(),
                shards: 1,
            },
        }
    }
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
    /// Length of the intervals that the report has operations of, ns of model time; 0: it has no series.
    pub interval_ns: u64,
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
