//! Settings that a run would not look at. Who asks for one by an option, or makes it an axis of a sweep,
//! expects it to matter.

use kvdrive_device::config::Dispatch;
use kvdrive_device::engines::{BLOCK, ENGINES};
use kvdrive_flash::timing::TIMINGS;
use kvdrive_link::transfer::{METHODS, MethodRow};
use kvdrive_store::hashlog::WriteMode;
use kvdrive_store::{Step, store_row};

use super::Config;
use crate::workload::{WorkloadParams, lookers};

/// Keys of `flash` that only its operations look at, beside those of a timing (`TimingRow::keys`).
const OF_FLASH_OPERATIONS: &[&str] =
    &["timing", "uncharged", "spare_blocks", "factory_bad_blocks", "read_retries", "read_retry_ns"];
/// Keys of `controller` that one way of dispatching looks at alone.
const OF_DISPATCHES: &[(&str, &[&str])] =
    &[("context", &["contexts", "cores", "roles"]), ("round-robin", &["io_threads", "deal_ns"])];

impl Config {
    /// Why a run of this would not look at `key`, and what would; `None` if it does.
    pub fn ignores(&self, key: &str) -> Option<String> {
        let (section, name) = key.split_once('.')?;
        match section {
            "workload" => sync_ignores(self, name).or_else(|| workload_ignores(&self.workload, name)),
            "saker" => saker_ignores(self, name).map(str::to_owned),
            "controller" => dispatch_ignores(self.controller.dispatch, name),
            "flash" => flash_ignores(self, name),
            "host" | "link" => {
                host_ignores(self, key).or_else(|| transfer_ignores(&self.host.transfer.method, key))
            }
            _ if self.has_store_on_host() && (section == "store" || store_row(section).is_some()) => {
                host_store_ignores(&self.host.store, section, name)
                    .or_else(|| self.switch_ignores(key).map(str::to_owned))
            }
            _ => engine_ignores(&self.engine.name, section, name)
                .or_else(|| self.switch_ignores(key).map(str::to_owned)),
        }
    }

    /// Keys that another key, of the same engine, turns off.
    fn switch_ignores(&self, key: &str) -> Option<&'static str> {
        let policy = self.packing.row();
        match key {
            "hashlog.blocks_under_way" if self.hashlog.write == WriteMode::Wait => {
                Some("hashlog.write=wait has one a thread; hashlog.write=overlap looks at it")
            }
            "packing.dlt_entries" if policy.is_some_and(|row| !row.has_dlt) => {
                Some("the policy of packing keeps no DMA log table; --packing backfill does")
            }
            "packing.slots_cross_pages" if policy.is_some_and(|row| !row.has_slots) => {
                Some("the policy of packing leaves nothing in slots; --packing block does")
            }
            "gc.free_segments_low" if !self.gc.enabled => {
                Some("gc.enabled=false collects nothing; gc.enabled=true looks at it")
            }
            "lsm.bloom_hashes" if self.lsm.bloom_bits_per_key == 0 => {
                Some("lsm.bloom_bits_per_key=0 leaves out the filters; any other number looks at it")
            }
            _ => None,
        }
    }
}

fn transfer_ignores(transfer: &str, key: &str) -> Option<String> {
    let method = METHODS.iter().find(|row| row.name == transfer)?;
    let (section, name) = key.split_once('.')?;
    let has = |row: &MethodRow| match (section, name) {
        ("host", "threshold1_bytes" | "threshold2_bytes" | "alpha" | "beta") => {
            row.thresholds.contains(&name)
        }
        ("host", "cxl_setup_ns") | ("link", "cxl_store_ns" | "cxl_line_ns") => row.by_window,
        _ => true,
    };
    let lookers = || METHODS.iter().filter(|row| has(row)).map(|row| row.name).collect::<Vec<_>>().join(", ");
    (!has(method)).then(|| format!("transfer {transfer} does not look at it; {} do", lookers()))
}

/// Keys of hosts that one kind of them looks at alone.
fn host_ignores(config: &Config, key: &str) -> Option<String> {
    const OF_SHARED_CORES: &[&str] = &["host.cores", "host.queues"];
    const OF_PAIRS: &[&str] =
        &["host.transfer", "host.threshold", "host.alpha", "host.beta", "link.cxl", "host.cxl"];
    if config.saker.enabled && key == "host.depth" {
        return Some(
            "SAKER's threads do one operation at a time; --threads and saker.in_flight look at it".into(),
        );
    }
    if config.has_store_on_host() && OF_PAIRS.iter().any(|begin| key.starts_with(begin)) {
        let store = &config.host.store;
        return Some(format!("store {store} on the host sends blocks, not pairs, by prp"));
    }
    let threads = config.threads().filter(|_| OF_SHARED_CORES.contains(&key))?;
    Some(format!("each of {threads} threads has a core and a queue pair; --threads says how many there are"))
}

/// Syncs of who asks a drive itself.
fn sync_ignores(config: &Config, name: &str) -> Option<String> {
    let has_something = config.saker.enabled || config.has_store_on_host();
    (name == "sync_every" && !has_something).then(|| {
        "what a drive answers is durable; --saker on or --side host has something to sync".to_owned()
    })
}

/// Keys of SAKER, where it is off or has no cache.
fn saker_ignores(config: &Config, name: &str) -> Option<&'static str> {
    const OF_CACHE: &[&str] =
        &["admit_bytes", "eviction", "cache_probe_ns", "cache_insert_ns", "cache_evict_ns"];
    let saker = &config.saker;
    match name {
        "enabled" => None,
        "cache_bytes" if config.has_store_on_host() => {
            Some("a store on the host has no SAKER; lsmtree.row_cache_bytes is its cache")
        }
        _ if !saker.enabled => Some("SAKER is off; --saker on looks at it"),
        _ if saker.cache_bytes == 0 && OF_CACHE.contains(&name) => {
            Some("SAKER has no cache; --cache 64MiB gives it one")
        }
        _ => None,
    }
}

/// Keys of stores that the one on the host does not look at.
fn host_store_ignores(store: &str, section: &str, name: &str) -> Option<String> {
    if section != "store" {
        return (section != store)
            .then(|| format!("store {store} on the host does not look at it; --store {section} does"));
    }
    if name == "operations_bytes" {
        return Some(format!("store {store} is on the host; stores in the drive, --side disk, look at it"));
    }
    step_ignores(store, section, name)
}

fn flash_ignores(config: &Config, name: &str) -> Option<String> {
    let lookers: Vec<_> = TIMINGS.iter().filter(|row| row.keys.contains(&name)).map(|row| row.name).collect();
    if !config.flash.enabled && (!lookers.is_empty() || OF_FLASH_OPERATIONS.contains(&name)) {
        let why = "leaves out flash operations, and what they take; nand.enabled=true looks at it";
        return Some(format!("nand.enabled=false {why}"));
    }
    let timing = config.flash.timing.name.as_str();
    (!lookers.is_empty() && !lookers.contains(&timing)).then(|| {
        let lookers = lookers.join(" or ");
        format!("flash.timing={timing} does not look at it; flash.timing={lookers} does")
    })
}

fn dispatch_ignores(dispatch: Dispatch, name: &str) -> Option<String> {
    let dispatch = match dispatch {
        Dispatch::Context { .. } => "context",
        Dispatch::RoundRobin { .. } => "round-robin",
    };
    let (looker, _) = OF_DISPATCHES.iter().find(|(_, keys)| keys.contains(&name))?;
    (*looker != dispatch).then(|| {
        format!("controller.dispatch={dispatch} does not look at it; --set controller.dispatch={looker} does")
    })
}

fn workload_ignores(params: &WorkloadParams, name: &str) -> Option<String> {
    let (workload, distribution) = (params.name.as_str(), params.distribution.as_str());
    let row = params.row()?;
    let problem = match name {
        "value_size" if row.own_sizes => {
            "has sizes of its own; --workload w-a stores values of one size".to_owned()
        }
        "num" if !row.draws_keys() => {
            "draws no keys, each of its operations has one of its own; --workload fillrandom draws".to_owned()
        }
        "distribution" if !row.has_distribution() => {
            "chooses keys by itself; those of ycsb- and plus- do as asked".to_owned()
        }
        "zipf_theta" | "replayed_by" if row.has_distribution() && distribution == "uniform" => {
            "draws all keys alike; --distribution zipfian does not".to_owned()
        }
        "scramble" if params.looks_at(name) && distribution != "zipfian" => {
            format!("draws keys {distribution}; --distribution zipfian can be scrambled")
        }
        "arrivals" if params.rate_per_s == 0 && params.arrivals != "trace" => {
            "has no rate: clients begin an operation when their last one has ended; --rate gives it one"
                .to_owned()
        }
        "key_size" => {
            let bytes = row.own_key_bytes?;
            format!("has keys of {bytes} B; --workload fillseq takes the size that is asked for")
        }
        name if params.looks_at(name) => return None,
        name => format!("does not look at it; {} do", lookers(name)?),
    };
    Some(format!("workload {workload} {problem}"))
}

/// Steps of section `store` that this store does not take.
fn step_ignores(store: &str, section: &str, name: &str) -> Option<String> {
    let row = store_row(store).filter(|_| section == "store")?;
    let (step, _) = Step::ALL.iter().find(|(_, other)| name.strip_suffix("_ps") == Some(other))?;
    (!row.steps.contains(step)).then(|| format!("store {store} takes no such step"))
}

fn engine_ignores(engine: &str, section: &str, name: &str) -> Option<String> {
    if let Some(why) = step_ignores(engine, section, name) {
        return Some(why);
    }
    let lookers: Vec<_> =
        ENGINES.iter().filter(|row| row.sections.contains(&section)).map(|row| row.name).collect();
    let is_of_blocks = engine == BLOCK.name && BLOCK.sections.contains(&section);
    // Iterators are the controller's, whatever the engine.
    if lookers.contains(&engine) || is_of_blocks || (section, name) == ("lsm", "iterators") {
        return None;
    }
    let lookers = match lookers.split_last()? {
        (only, []) => (*only).to_owned(),
        (last, others) => format!("{} or {last}", others.join(", ")),
    };
    let problem = match (section, name) {
        _ if engine == BLOCK.name => {
            format!("keeps blocks, no pairs; --engine {lookers} looks at it")
        }
        ("packing", _) => format!("places values by itself; --engine {lookers} does by a policy"),
        ("hash", "dram_bytes" | "dram_accounting") => format!("has no such budget; --engine {lookers} has"),
        _ => format!("does not look at it; --engine {lookers} does"),
    };
    Some(format!("engine {engine} {problem}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Document};
    use crate::workload::{self, Op, WORKLOADS, WorkloadParams};

    fn config_of(workload: &str, set: &[&str]) -> Config {
        let mut document = Document::profile("cosmos-plus").unwrap();
        let common = [&format!("workload.name={workload}"), "workload.num=1000", "workload.ops=1000"];
        for set in common.iter().chain(set) {
            document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
        }
        document.config().unwrap()
    }

    #[test]
    fn what_a_workload_looks_at_is_a_key_of_the_configuration() {
        for row in WORKLOADS {
            for setting in row.looks_at {
                assert!(crate::config::knows_key(&format!("workload.{setting}")), "{}: {setting}", row.name);
            }
        }
    }

    /// The first operations of a workload, those that load before them.
    fn begin(params: &WorkloadParams) -> Vec<Op> {
        let mut workload = workload::build(params, 1).unwrap();
        let load = (0..workload.preload()).map(|index| {
            let (key, value) = workload.preload_pair(index);
            Op::Store { key, value }
        });
        let mut operations: Vec<Op> = load.collect();
        operations.extend((0..200).map(|_| workload.next()));
        operations
    }

    #[test]
    fn what_a_workload_ignores_alters_nothing_it_asks_for() {
        let settings = [
            "value_size=33",
            "num=999",
            "key_size=8",
            "distribution=uniform",
            "large_ratio=8:1",
            "read_fraction=0.25",
            "delete_fraction=0.25",
            "exist_fraction=0.25",
            "seek_fraction=0.25",
            "list_fraction=0.25",
            "seek_nexts=3",
            "key_dist_a=0.002312",
            "keyrange_num=30",
            "value_k=0.3",
            "value_floor_bytes=10",
            "mix_max_value_size=512",
            "iter_sigma=10.0",
            "mix_max_scan_len=3",
            "mix_get_ratio=0.5",
            "scramble=false",
            "zipf_theta=0.5",
            "overwrites=10",
            "scan_length_max=3",
        ];
        let distributions = ["uniform", "zipfian", "latest"];
        for (row, distribution) in WORKLOADS.iter().flat_map(|row| distributions.map(|named| (row, named))) {
            let distribution = format!("workload.distribution={distribution}");
            let usual = begin(&config_of(row.name, &[&distribution]).workload);
            for setting in settings {
                let setting = format!("workload.{setting}");
                let (key, _) = setting.split_once('=').unwrap();
                let config = config_of(row.name, &[&distribution, &setting]);
                if let Some(why) = config.ignores(key) {
                    assert!(why.starts_with(&format!("workload {} ", row.name)), "{why}");
                    assert_eq!(begin(&config.workload), usual, "{setting}: {why}");
                }
            }
        }
    }

    /// Keys of a distribution are looked at where a run draws by it.
    #[test]
    fn what_shapes_a_distribution_matters_under_that_one() {
        for (distribution, theta, scramble) in
            [("uniform", false, false), ("zipfian", true, true), ("latest", true, false)]
        {
            let distribution = format!("workload.distribution={distribution}");
            let usual = config_of("ycsb-a", &[&distribution]);
            for (setting, is_taken) in
                [("workload.zipf_theta=0.5", theta), ("workload.scramble=false", scramble)]
            {
                let (key, _) = setting.split_once('=').unwrap();
                assert_eq!(usual.ignores(key).is_none(), is_taken, "{key} under {distribution}");
                let other = config_of("ycsb-a", &[&distribution, setting]);
                let differs = begin(&other.workload) != begin(&usual.workload);
                assert_eq!(differs, is_taken, "{setting} under {distribution}");
            }
        }
    }

    /// Those that options ask for: an option that is taken alters what the workload asks for.
    #[test]
    fn what_a_workload_does_not_ignore_alters_what_it_asks_for() {
        for row in WORKLOADS {
            let differs = |one: &str, other: &str| {
                let [one, other] = [one, other].map(|set| begin(&config_of(row.name, &[set]).workload));
                one != other
            };
            let config = config_of(row.name, &[]);
            let is_taken = |key: &str| config.ignores(key).is_none();
            let sizes = differs("workload.value_size=32", "workload.value_size=33");
            assert_eq!(sizes, is_taken("workload.value_size"), "value_size for {}", row.name);
            let pairs = differs("workload.num=1000", "workload.num=1001");
            assert_eq!(pairs, is_taken("workload.num"), "num for {}", row.name);
            // One with a distribution of its own says so in its report, and is compared under it.
            if row.own_distribution().is_none() {
                let keys = differs("workload.distribution=uniform", "workload.distribution=zipfian");
                assert_eq!(keys, is_taken("workload.distribution"), "distribution for {}", row.name);
            }
        }
    }
}
