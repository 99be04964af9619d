//! What every key may be: the tables of all rooms put together, and the conditions between keys of several.
//!
//! A value is checked when it is set, so that the message can name the key; conditions between keys when the
//! configuration is taken.

use kvdrive_device::config::ControllerConfig;
use kvdrive_device::engines::{BLOCK, ENGINES};
use kvdrive_device::{DriveConfig, MediaConfig};
use kvdrive_engines::hash::{self, HashConfig};
use kvdrive_engines::lsm::{GcConfig, IndexConfig};
use kvdrive_engines::packing::PackingConfig;
use kvdrive_engines::page_buffer::BufferConfig;
use kvdrive_flash::FlashConfig;
use kvdrive_flash::ftl::FtlConfig;
use kvdrive_flash::timing::flat::FlatConfig;
use kvdrive_host::modelled::HostCosts;
use kvdrive_host::modelled::saker::SakerCosts;
use kvdrive_link::LinkConfig;
use kvdrive_link::transfer::TransferConfig;
use kvdrive_saker::cache::EVICTIONS;
use kvdrive_settings::Rule::{
    self, Flag, Integer, Integers, Multiple, Number, OneOf, Parsed, Positive, PowerOfTwo, Row, Text, Word,
};
use kvdrive_settings::{Rules, TIME, VALUE_MAX_BYTES};
use kvdrive_spec::batch::BATCH_REQUESTS_MAX;
use kvdrive_store::STORES;
use toml_edit::Value;

use super::{Config, ConfigError, NO_STORE};
use crate::names::nearest;

/// Longest step of a store: 1 ms, in picoseconds. Some are taken for every byte of a value.
const STEP_PS: Rule = Integer(0, 1_000_000_000);
const FRACTION: Rule = Number(0.0, 1.0);
const ANY: Rule = Number(-1e9, 1e9);
const WEIGHT: Rule = Number(0.0, 1e9);

const HOST_CORES: Rules = &[("host.cores", Integer(1, 1024))];
const HOST_QUEUES: Rules = &[
    ("host.think_ns", TIME),
    ("host.store", Row(|| [NO_STORE].into_iter().chain(STORES.iter().map(|row| row.name)).collect())),
    ("host.threads", Integer(0, 256)),
    ("host.queues", Integer(1, 1024)),
    ("host.queue_entries", Integer(2, 65536)),
    ("host.depth", Integer(1, 65535)),
];
const ENGINE: Rules =
    &[("engine.name", Row(|| ENGINES.iter().chain([&BLOCK]).map(|row| row.name).collect()))];
const NAND: Rules = &[("nand.enabled", Flag)];
const RUN: Rules = &[
    ("run.seed", Integer(0, i64::MAX)),
    ("run.clock", Word(&["virtual", "wall"])),
    ("run.interval_ns", Integer(0, 1 << 60)),
];
const STORE: Rules = &[
    ("store.operations_bytes", Integer(0, 1 << 40)),
    ("store.probe_ps", STEP_PS),
    ("store.insert_ps", STEP_PS),
    ("store.memtable_search_ps", STEP_PS),
    ("store.memtable_insert_ps", STEP_PS),
    ("store.row_probe_ps", STEP_PS),
    ("store.row_insert_ps", STEP_PS),
    ("store.compare_ps", STEP_PS),
    ("store.copy_byte_ps", STEP_PS),
    ("store.checksum_byte_ps", STEP_PS),
    ("store.bloom_check_ps", STEP_PS),
    ("store.index_search_ps", STEP_PS),
    ("store.block_search_ps", STEP_PS),
    ("store.merge_entry_ps", STEP_PS),
    ("store.node_search_ps", STEP_PS),
    ("store.node_insert_ps", STEP_PS),
    ("store.shadow_ps", STEP_PS),
    ("store.split_ps", STEP_PS),
];
const HASHLOG: Rules = &[
    ("hashlog.block_bytes", Multiple(4096, 0, 4 << 20)),
    ("hashlog.write", Word(&["wait", "overlap"])),
    ("hashlog.blocks_under_way", Integer(1, 1 << 16)),
    ("hashlog.segment_bytes", Multiple(4096, 0, 1 << 30)),
];
const LSMTREE: Rules = &[
    ("lsmtree.write_buffer_size", Integer(0, 1 << 40)),
    ("lsmtree.max_write_buffer_number", Integer(2, 64)),
    ("lsmtree.level0_file_num_compaction_trigger", Integer(1, 1 << 16)),
    ("lsmtree.level0_slowdown_writes_trigger", Integer(1, 1 << 16)),
    ("lsmtree.level0_stop_writes_trigger", Integer(1, 1 << 16)),
    ("lsmtree.delayed_write_rate", Integer(1, 1 << 40)),
    ("lsmtree.max_bytes_for_level_base", Integer(0, 1 << 40)),
    ("lsmtree.max_bytes_for_level_multiplier", Integer(2, 1000)),
    ("lsmtree.target_file_size_base", Integer(0, 1 << 40)),
    ("lsmtree.block_size", Integer(1, 1 << 20)),
    ("lsmtree.bloom_bits", Integer(0, 64)),
    ("lsmtree.row_cache_bytes", Integer(0, 1 << 40)),
    ("lsmtree.wal", Flag),
    ("lsmtree.background", Word(&["shared", "own"])),
];
const BTREE: Rules =
    &[("btree.buffer_bytes", Integer(0, 1 << 40)), ("btree.checkpoint_bytes", Integer(1, 1 << 40))];
const SAKER: Rules = &[
    ("saker.enabled", Flag),
    ("saker.batch", Integer(0, BATCH_REQUESTS_MAX as i64)),
    ("saker.container_bytes", Integer(64, VALUE_MAX_BYTES)),
    ("saker.containers", Word(&["own", "shared"])),
    ("saker.in_flight", Integer(1, 4096)),
    ("saker.buckets", Integer(1, 1 << 24)),
    ("saker.cache_bytes", Integer(0, 1 << 40)),
    ("saker.admit_bytes", Integer(0, VALUE_MAX_BYTES)),
    ("saker.eviction", Row(|| EVICTIONS.iter().map(|row| row.name).collect())),
];
const WORKLOAD: Rules = &[
    ("workload.name", Text),
    ("workload.ops", Integer(0, 1 << 48)),
    ("workload.num", Integer(1, 1 << 32)),
    ("workload.key_size", Integer(1, 1024)),
    ("workload.value_size", Integer(0, VALUE_MAX_BYTES)),
    ("workload.large_ratio", Word(&["9:1", "8:1"])),
    ("workload.read_fraction", FRACTION),
    ("workload.delete_fraction", FRACTION),
    ("workload.exist_fraction", FRACTION),
    ("workload.seek_fraction", FRACTION),
    ("workload.list_fraction", FRACTION),
    ("workload.seek_nexts", Integer(0, 1 << 20)),
    ("workload.key_dist_a", WEIGHT),
    ("workload.key_dist_b", WEIGHT),
    ("workload.keyrange_dist_a", ANY),
    ("workload.keyrange_dist_b", ANY),
    ("workload.keyrange_dist_c", ANY),
    ("workload.keyrange_dist_d", ANY),
    ("workload.keyrange_num", Integer(1, 1 << 20)),
    ("workload.value_theta", ANY),
    ("workload.value_k", ANY),
    ("workload.value_sigma", WEIGHT),
    ("workload.value_floor_bytes", Integer(0, VALUE_MAX_BYTES)),
    ("workload.mix_max_value_size", Integer(1, VALUE_MAX_BYTES)),
    ("workload.iter_theta", ANY),
    ("workload.iter_k", ANY),
    ("workload.iter_sigma", WEIGHT),
    ("workload.mix_max_scan_len", Integer(1, 1 << 20)),
    ("workload.mix_get_ratio", WEIGHT),
    ("workload.mix_put_ratio", WEIGHT),
    ("workload.mix_seek_ratio", WEIGHT),
    ("workload.distribution", Word(&["usual", "uniform", "zipfian", "latest"])),
    ("workload.warehouses", Integer(1, (1 << 20) - 1)),
    ("workload.shrink", PowerOfTwo(1, 256)),
    ("workload.stock_update", Flag),
    ("workload.scramble", Flag),
    ("workload.replayed_by", Integer(1, 1024)),
    ("workload.zipf_theta", Number(0.01, 0.999)),
    ("workload.overwrites", Integer(0, 1 << 40)),
    ("workload.timed_load", Flag),
    ("workload.scan_length_max", Integer(1, 1 << 20)),
    ("workload.until_full", Flag),
    ("workload.rate_per_s", Integer(0, 1_000_000_000)),
    ("workload.arrivals", Word(&["fixed", "poisson", "trace"])),
    ("workload.duration_ns", Integer(0, 1 << 60)),
    ("workload.verify", Word(&["off", "values", "only"])),
    ("workload.sync_every", Integer(0, 1 << 48)),
    ("workload.trace", Text),
    ("workload.trace_format", Text),
];

/// The tables of all rooms, in the order of a profile.
const TABLES: &[Rules] = &[
    LinkConfig::RULES,
    HOST_CORES,
    HostCosts::RULES,
    HOST_QUEUES,
    TransferConfig::RULES,
    ENGINE,
    ControllerConfig::RULES,
    BufferConfig::RULES,
    PackingConfig::RULES,
    IndexConfig::RULES,
    FlashConfig::RULES,
    FlatConfig::RULES,
    FtlConfig::RULES,
    GcConfig::RULES,
    HashConfig::RULES,
    DriveConfig::RULES,
    MediaConfig::RULES,
    NAND,
    RUN,
    STORE,
    HASHLOG,
    LSMTREE,
    BTREE,
    SAKER,
    SakerCosts::RULES,
    WORKLOAD,
];

/// Every key of a profile, in its order, and what it may be.
pub(super) fn rules() -> impl Iterator<Item = &'static (&'static str, Rule)> {
    TABLES.iter().copied().flatten()
}

/// What a key may be; `None`: there is no such key.
pub(super) fn rule(key: &str) -> Option<&'static Rule> {
    rules().find(|(name, _)| *name == key).map(|(_, rule)| rule)
}

/// Whether a key may be `value`.
///
/// # Errors
/// A key without a row, a wrong type, a value out of range; the message says what is allowed.
pub(super) fn check(key: &str, value: &Value) -> Result<(), ConfigError> {
    let Some(rule) = rule(key) else {
        return Err(ConfigError::new(key, "unknown key"));
    };
    if holds(rule, value) {
        return Ok(());
    }
    let given = value.clone().decorated("", "");
    let meant = value.as_str().and_then(|word| nearest(word, &words(rule)));
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    Err(ConfigError::new(key, format!("{given}; allowed: {}{meant}", rule.allowed())))
}

/// What a key may be, in words.
pub(super) fn allowed(key: &str) -> String {
    rule(key).map_or_else(String::new, Rule::allowed)
}

/// The words a key may be, if it is one of some.
fn words(rule: &Rule) -> Vec<&'static str> {
    match rule {
        Word(list) => list.to_vec(),
        Row(names) => names(),
        _ => Vec::new(),
    }
}

fn holds(rule: &Rule, value: &Value) -> bool {
    let integer = |holds: &dyn Fn(i64) -> bool| value.as_integer().is_some_and(holds);
    let number = value.as_float().filter(|x| x.is_finite());
    match rule {
        Integer(low, high) => integer(&|n| (*low..=*high).contains(&n)),
        PowerOfTwo(low, high) => integer(&|n| (*low..=*high).contains(&n) && n.count_ones() == 1),
        Multiple(of, low, high) => integer(&|n| (*low..=*high).contains(&n) && n % of == 0),
        OneOf(list) => integer(&|n| list.contains(&n)),
        Number(low, high) => number.is_some_and(|x| (*low..=*high).contains(&x)),
        Positive => number.is_some_and(|x| x > 0.0),
        Word(list) => value.as_str().is_some_and(|word| list.contains(&word)),
        Row(names) => value.as_str().is_some_and(|word| names().contains(&word)),
        Parsed(passes, _) => {
            value.as_array().is_some_and(|array| array.iter().all(|text| text.as_str().is_some_and(passes)))
        }
        Text => value.is_str(),
        Flag => value.is_bool(),
        Integers(length, low, high) => value.as_array().is_some_and(|array| {
            array.len() == *length
                && array.iter().all(|n| n.as_integer().is_some_and(|n| (*low..=*high).contains(&n)))
        }),
    }
}

/// Of what says when operations begin.
const AS_CLIENTS_DO: &str =
    "is for model time; by the wall clock a client begins its next operation when its last one has ended";

/// A condition between keys: `Some` says what is wrong.
type Condition = fn(&Config) -> Option<String>;

/// Conditions between keys, each with the key to blame.
const CONDITIONS: &[(&str, Condition)] = &[
    ("host.depth", |c| {
        let most = u64::from(c.queue_pairs()) * u64::from(c.host.queue_entries - 1);
        let pairs = if c.threads().is_some() { "host.threads" } else { "host.queues" };
        (!c.saker.enabled && u64::from(c.host.depth) > most)
            .then(|| format!("{}; {pairs} and host.queue_entries hold {most}", c.host.depth))
    }),
    ("engine.name", |c| {
        (c.engine.name == BLOCK.name && !c.has_store_on_host()).then(|| {
            let stores: Vec<_> = STORES.iter().map(|row| row.name).collect();
            format!("\"block\" takes no pairs; --side host --store {}", stores.join(", "))
        })
    }),
    ("host.store", |c| {
        let problem = match (c.has_store_on_host(), c.engine.name.as_str(), c.run.clock.as_str()) {
            (true, engine, _) if engine != BLOCK.name => {
                format!("stands on blocks; engine.name is \"{engine}\", set it to \"block\"")
            }
            (true, _, "wall") => "is for model time; set run.clock to virtual".to_owned(),
            (true, ..) if c.media.has_file() => "is for a drive in memory; set media.kind to tags".to_owned(),
            _ => return None,
        };
        Some(format!("\"{}\" {problem}", c.host.store))
    }),
    ("saker.enabled", |c| {
        let problem = match c.saker.enabled {
            true if c.has_store_on_host() => {
                "lies in front of a drive of pairs; a store on the host has none below it"
            }
            true if c.workload.until_full => {
                "learns at a sync that a pair did not fit; leave out workload.until_full"
            }
            _ => return None,
        };
        Some(format!("true; {problem}"))
    }),
    ("saker.in_flight", |c| {
        // One slot more is for reads and for writes on their own.
        let most = c.host.queue_entries.saturating_sub(2);
        (c.saker.enabled && c.saker.in_flight > most).then(|| {
            format!("{}; host.queue_entries of {} hold {most}", c.saker.in_flight, c.host.queue_entries)
        })
    }),
    ("saker.container_bytes", |c| {
        let most = c.controller.max_value_bytes;
        (c.saker.enabled && c.saker.container_bytes > most)
            .then(|| format!("{}; controller.max_value_bytes is {most}", c.saker.container_bytes))
    }),
    ("nand.enabled", |c| {
        // Engine lsm has keys and sizes in memory, and says of a value that it is gone.
        (!c.flash.enabled && hash::scheme(&c.engine.name).is_some())
            .then(|| format!("false; engine.name = \"{}\" finds its pairs on flash only", c.engine.name))
    }),
    ("workload.name", |c| {
        (c.workload.has_units() && c.run.clock == "wall")
            .then(|| format!("{:?} is for model time; set run.clock to virtual", c.workload.name))
    }),
    ("run.interval_ns", |c| {
        (c.run.interval_ns > 0 && c.run.clock == "wall")
            .then(|| format!("{}; is for model time; set run.clock to virtual", c.run.interval_ns))
    }),
    ("workload.timed_load", |c| {
        if !c.workload.timed_load && c.has_store_on_host() {
            return Some("false; a store on the host is loaded by its threads: set it to true".into());
        }
        if !c.workload.timed_load && c.workload.has_units() {
            return Some("false; rows of tpcc are bytes, which clients bring: set it to true".into());
        }
        (!c.workload.timed_load && c.run.clock == "wall")
            .then(|| "false; by the wall clock loading takes the time it takes: set it to true".into())
    }),
    ("workload.trace", |c| {
        (c.workload.name == "trace" && c.workload.trace.is_empty())
            .then(|| "empty; workload.name = \"trace\" needs the path of one".to_owned())
    }),
    ("workload.arrivals", |c| {
        let problem = match (c.workload.arrivals.as_str(), c.run.clock.as_str()) {
            ("trace", "wall") => AS_CLIENTS_DO,
            ("trace", _) if c.workload.name != "trace" => "is for workload.name = \"trace\"",
            ("trace", _) if c.workload.rate_per_s > 0 => "contradicts workload.rate_per_s; leave out one",
            _ => return None,
        };
        Some(format!("{:?}; {problem}", c.workload.arrivals))
    }),
    ("workload.rate_per_s", |c| {
        (c.workload.rate_per_s > 0 && c.run.clock == "wall")
            .then(|| format!("{}; {AS_CLIENTS_DO}", c.workload.rate_per_s))
    }),
    ("workload.verify", |c| {
        let problem = match c.workload.verify.as_str() {
            "off" => return None,
            _ if c.workload.has_units() => "is for patterns; tpcc checks its own rows at the end",
            "only" if !c.media.has_file() => "reads what an image holds; set media.kind to file",
            "only" if c.workload.duration_ns > 0 || c.workload.until_full => {
                "has to know how many operations were done; leave out workload.duration_ns and until_full"
            }
            _ => return None,
        };
        Some(format!("{:?}; {problem}", c.workload.verify))
    }),
    ("workload.value_size", |c| {
        (c.workload.value_size > c.controller.max_value_bytes).then(|| {
            format!(
                "{}; controller.max_value_bytes is {}",
                c.workload.value_size, c.controller.max_value_bytes
            )
        })
    }),
];

/// Checks the conditions between keys: those of the drive, which knows them itself, and those above.
///
/// # Errors
/// The first that does not hold.
pub(super) fn check_conditions(config: &Config) -> Result<(), ConfigError> {
    for (key, condition) in CONDITIONS {
        if let Some(problem) = condition(config) {
            return Err(ConfigError::new(*key, problem));
        }
    }
    let blamed = |line: String| {
        let (key, problem) = line.split_once(": ").expect("the line begins with a key");
        ConfigError::new(key, problem)
    };
    config.media.check().map_err(blamed)?;
    config.drive().check().map_err(|error| blamed(error.to_string()))
}
