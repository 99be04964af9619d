//! The typed configuration: one struct for each section of a document. Most of them belong to the crates that
//! read them, where the meaning of a key is documented; the sections of runs themselves are here. Defaults
//! with their sources are in `profiles/`.

use kvdrive_declare::{Section, When};
use kvdrive_device::MediaConfig;
use kvdrive_device::config::ControllerConfig;
use kvdrive_device::engines::{BLOCK, ENGINES};
use kvdrive_engines::EngineSettings;
use kvdrive_flash::FlashConfig;
use kvdrive_host::modelled::HostCosts;
use kvdrive_host::modelled::saker::SakerCosts;
use kvdrive_link::LinkConfig;
use kvdrive_link::transfer::{PAIRS, TransferConfig};
use kvdrive_nvme::batch::BATCH_REQUESTS_MAX;
use kvdrive_saker::cache::EVICTIONS;
use kvdrive_saker::{BatchSize, CacheConfig, Charge, Containers};
use kvdrive_store::STORES;
use kvdrive_workload::WorkloadParams;

/// Name in `host.store` of a drive that takes pairs.
pub const NO_STORE: &str = "none";

/// Everything a run depends on.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("")]
pub struct Config {
    /// PCIe.
    #[setting(part)]
    pub link: LinkConfig,
    /// The host.
    #[setting(part)]
    pub host: HostSection,
    /// Index and value placement.
    #[setting(part)]
    pub engine: EngineSection,
    /// Firmware and its cores.
    #[setting(part)]
    pub controller: ControllerConfig,
    /// NAND.
    #[setting(part)]
    pub flash: FlashConfig,
    /// The engines: pages, buffers, indexes, collection.
    #[setting(part)]
    pub engines: EngineSettings,
    /// What survives a power cut.
    #[setting(part)]
    pub power: PowerSection,
    /// What its maker promises of its flash.
    #[setting(part, when = &[When::one_of("workload.name", &["kvcache"])])]
    pub rated: RatedSection,
    /// Where pages are kept.
    #[setting(part)]
    pub media: MediaConfig,
    /// The run itself.
    #[setting(part)]
    pub run: RunSection,
    /// The layer in front of the driver.
    #[setting(part)]
    pub saker: SakerSection,
    /// Is it a drive for hosts that bring the work ([`Document::serve_hosts`](crate::Document::serve_hosts))?
    #[setting(skip)]
    pub serves_hosts: bool,
    /// The operations on the drive.
    #[setting(part, when = &[When::row("workload.name", kvdrive_workload::looks_at)])]
    pub workload: WorkloadParams,
    /// For tests of this crate only.
    #[cfg(test)]
    #[setting(part)]
    pub probe: super::probe::Probe,
}

impl Config {
    /// Is the key-value store on the host, so that the drive has only its pages?
    pub fn has_store_on_host(&self) -> bool {
        self.host.store != NO_STORE
    }

    /// Threads of the host, which have a core and a queue pair each; `None`: drivers share the host's cores.
    pub fn threads(&self) -> Option<u32> {
        match self.host.threads {
            0 => (self.has_store_on_host() || self.saker.enabled).then_some(1),
            threads => Some(threads),
        }
    }

    /// Queue pairs of the host.
    pub fn queue_pairs(&self) -> u32 {
        self.threads().unwrap_or(self.host.queues)
    }
}

/// Condition: drivers share cores and queue pairs; otherwise each thread has its own.
const OWN_CORES: &[When] =
    &[When::off("host.threads"), When::one_of("host.store", &[NO_STORE]), When::off("saker.enabled")];
/// Condition: SAKER is on.
const ON: When = When::on("saker.enabled");
/// Condition: SAKER has a cache.
const CACHES: When = When::on("saker.cache_bytes");

/// `[host]`: the machine of the application, and its driver.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("host")]
pub struct HostSection {
    /// Cores of the host.
    #[setting(is = Integer(1, 1024), when = OWN_CORES)]
    pub cores: u32,
    /// Times of its work on commands.
    #[setting(part)]
    pub costs: HostCosts,
    /// Host core time between two operations, ns. It counts in throughput, not in latency.
    #[setting(is = TIME)]
    pub think_ns: u64,
    /// The store that runs on the host; `none`: the drive takes pairs.
    #[setting(is = Row(|| [NO_STORE].into_iter().chain(STORES.iter().map(|row| row.name)).collect()))]
    pub store: String,
    /// Threads of the host, each with a core and a queue pair of its own; 0: all operations share
    /// `host.cores` cores and `host.queues` queue pairs.
    #[setting(is = Integer(0, 256), option = "threads")]
    pub threads: u32,
    /// Queue pairs of the host.
    #[setting(is = Integer(1, 1024), option = "queues", when = OWN_CORES)]
    pub queues: u32,
    /// Entries of each queue.
    #[setting(is = Integer(2, 65536))]
    pub queue_entries: u32,
    /// Operations under way at once, over all queues.
    #[setting(is = Integer(1, 65535), option = "depth", when = &[When::off("saker.enabled")])]
    pub depth: u32,
    /// Transfer method.
    #[setting(part, when = &[PAIRS])]
    pub transfer: TransferConfig,
}

/// `[saker]`: the layer between application and driver, if it is on.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("saker")]
pub struct SakerSection {
    /// Whether SAKER, a layer that batches small writes and caches small reads, is in front of the driver.
    #[setting(option = "saker")]
    pub enabled: bool,
    /// Most requests of a batch; 0: adaptive.
    #[setting(is = Integer(0, BATCH_REQUESTS_MAX as i64), option = "batch", when = &[ON])]
    pub batch: u32,
    /// Most bytes of a batch.
    #[setting(is = Integer(64, BATCH_MAX_BYTES), when = &[ON])]
    pub container_bytes: u32,
    /// `own`: each client fills a container of its own; `shared`: all clients fill one.
    #[setting(is = Word(&["own", "shared"]), when = &[ON])]
    pub containers: String,
    /// Most batches of a client that are in flight at once.
    #[setting(is = Integer(1, 4096), when = &[ON])]
    pub in_flight: u32,
    /// Buckets of the pending table.
    #[setting(is = Integer(1, 1 << 24), when = &[ON])]
    pub buckets: u32,
    /// Bytes of the read cache.
    #[setting(is = Integer(0, 1 << 40), option = "cache", shrinks, when = &[ON])]
    pub cache_bytes: u64,
    /// Bytes that the read cache charges for a pair besides its key and value.
    #[setting(is = Integer(0, 4096), when = &[ON, CACHES])]
    pub cache_pair_bytes: u32,
    /// Largest value that enters the read cache, bytes.
    #[setting(is = Integer(0, BATCH_MAX_BYTES), when = &[ON, CACHES])]
    pub admit_bytes: u32,
    /// Eviction policy of the read cache.
    #[setting(is = Row(|| EVICTIONS.iter().map(|row| row.name).collect()), when = &[ON, CACHES])]
    pub eviction: String,
    /// What its steps cost.
    #[setting(part, when = &[ON])]
    pub costs: SakerCosts,
}

impl SakerSection {
    /// The settings of SAKER itself. In model time shards gain nothing, and with one shard evictions do not
    /// depend on hashes.
    pub fn settings(&self) -> kvdrive_saker::SakerConfig {
        kvdrive_saker::SakerConfig {
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
                // As RocksDB's row cache, which the paper uses and compares with.
                charge: Charge::Content { beside: self.cache_pair_bytes },
                admit_bytes: self.admit_bytes,
                eviction: self.eviction.clone(),
                shards: 1,
            },
        }
    }
}

/// `[engine]`: index and value placement.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("engine")]
pub struct EngineSection {
    /// The engine of the drive (`kvdrive list engines`).
    #[setting(is = Row(|| ENGINES.iter().chain([&BLOCK]).map(|row| row.name).collect()), option = "engine")]
    pub name: String,
}

/// `[power]`: memory that survives a power cut.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("power")]
pub struct PowerSection {
    /// Bytes of memory that survive a power cut.
    #[setting(is = Integer(1, 1 << 40))]
    pub protected_bytes: u64,
}

/// `[rated]`: how much writing the maker of the drive or of its flash promises. A drive does nothing with it; reports tell
/// from it how long a drive lasts.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("rated")]
pub struct RatedSection {
    /// Bytes that hosts may write during the life of the drive, as a multiple of its capacity: terabytes written over
    /// terabytes, or drive writes per day times days. 0: not known.
    #[setting(is = Number(0.0, 1e6))]
    pub drive_writes: f64,
    /// Times that a block may be programmed and erased. 0: not known.
    #[setting(is = Integer(0, 100_000_000))]
    pub erase_cycles: u32,
}

/// `[run]`: the run itself.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("run")]
pub struct RunSection {
    /// Seed of every random stream.
    #[setting(is = Integer(0, i64::MAX), option = "seed")]
    pub seed: u64,
    /// Clock of the run. `virtual`: model time; `wall`: the machine's clock.
    #[setting(is = Word(&["virtual", "wall"]), option = "clock")]
    pub clock: String,
    /// Length of the intervals in the report's series of operations, ns of the run's clock; 0: no series.
    #[setting(is = Integer(0, 1 << 60), shrinks)]
    pub interval_ns: u64,
}
