//! What every key may be: one row a key, and the conditions between keys.
//!
//! A value is checked when it is set, so that the message can name the key; conditions between keys when the
//! configuration is taken.

use kvdrive_device::controller::ENGINES;
use kvdrive_engines::firmware::Role;
use kvdrive_engines::hash;
use kvdrive_engines::lsm::{compaction::COMPACTIONS, layout::LAYOUTS};
use kvdrive_engines::packing::PACKINGS;
use kvdrive_engines::page_buffer::MIN_ENTRIES;
use kvdrive_flash::ftl::victim::VICTIMS;
use kvdrive_flash::media::MEDIA;
use kvdrive_flash::timing::TIMINGS;
use kvdrive_link::transfer::METHODS;
use toml_edit::Value;

use super::{Config, ConfigError};
use crate::setup;
use crate::workload::nearest;

/// What one key may be.
pub(super) enum Rule {
    /// An integer between the two, inclusive.
    Integer(i64, i64),
    /// A power of two between the two, inclusive.
    PowerOfTwo(i64, i64),
    /// A multiple of the first number between the other two, inclusive.
    Multiple(i64, i64, i64),
    /// One of these integers.
    OneOf(&'static [i64]),
    /// Any finite number between the two, inclusive.
    Number(f64, f64),
    /// A finite number above zero.
    Positive,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Name of a row of a table.
    Row(fn() -> Vec<&'static str>),
    /// A list of texts that all pass the test; what is allowed, in words.
    Parsed(fn(&str) -> bool, &'static str),
    /// Any text.
    Text,
    /// true or false.
    Flag,
    /// So many integers, each between the two, inclusive.
    Integers(usize, i64, i64),
}

use Rule::{Flag, Integer, Integers, Multiple, Number, OneOf, Parsed, Positive, PowerOfTwo, Row, Text, Word};

/// Longest time of one step: 1000 s. Far above any device, far below overflow of a sum.
const TIME_MAX_NS: i64 = 1_000_000_000_000;
const TIME: Rule = Integer(0, TIME_MAX_NS);
const FRACTION: Rule = Number(0.0, 1.0);
const ANY: Rule = Number(-1e9, 1e9);
const WEIGHT: Rule = Number(0.0, 1e9);
/// Longest value of the drive, in bytes (2 MiB).
const VALUE_MAX_BYTES: i64 = 2 << 20;

/// One row for every key of a profile, in its order.
pub(super) const RULES: &[(&str, Rule)] = &[
    ("link.generation", Integer(1, 5)),
    ("link.lanes", PowerOfTwo(1, 16)),
    ("link.max_payload_bytes", PowerOfTwo(128, 4096)),
    ("link.dma_page_ns", TIME),
    ("link.sqe_fetch_ns", TIME),
    ("link.cqe_write_ns", TIME),
    ("link.doorbell_ns", TIME),
    ("link.interrupt", Word(&["none", "msix"])),
    ("link.free_to_host", Flag),
    ("link.cxl_store_ns", TIME),
    ("link.cxl_line_ns", TIME),
    ("host.cores", Integer(1, 1024)),
    ("host.submit_ns", TIME),
    ("host.complete_ns", TIME),
    ("host.dma_setup_ns", TIME),
    ("host.pin_page_ns", TIME),
    ("host.entry_ns", TIME),
    ("host.cxl_setup_ns", TIME),
    ("host.think_ns", TIME),
    ("host.queues", Integer(1, 1024)),
    ("host.queue_entries", Integer(2, 65536)),
    ("host.depth", Integer(1, 65535)),
    ("host.transfer", Row(|| METHODS.iter().map(|row| row.name).collect())),
    ("host.threshold1_bytes", Integer(0, VALUE_MAX_BYTES)),
    ("host.threshold2_bytes", Integer(0, 4096)),
    ("host.alpha", Positive),
    ("host.beta", Positive),
    ("engine.name", Row(|| ENGINES.iter().map(|row| row.name).collect())),
    ("controller.dispatch", Word(&["context", "round-robin"])),
    ("controller.contexts", Integer(1, 65536)),
    ("controller.cores", Integer(1, 1024)),
    ("controller.roles", Word(&["any", "own"])),
    ("controller.io_threads", Integer(1, 256)),
    ("controller.deal_ns", TIME),
    ("controller.decode_store_ns", TIME),
    ("controller.decode_transfer_ns", TIME),
    ("controller.decode_other_ns", TIME),
    ("controller.index_insert_ns", TIME),
    ("controller.index_probe_ns", TIME),
    ("controller.memcpy_ns_per_kib", TIME),
    ("controller.memcpy_setup_ns", TIME),
    ("controller.unpack_ns", TIME),
    ("controller.complete_ns", TIME),
    ("controller.max_value_bytes", Integer(1, VALUE_MAX_BYTES)),
    ("controller.dma_granularity_bytes", OneOf(&[1, 4, 4096])),
    ("buffer.entries", Integer(MIN_ENTRIES as i64, 1 << 20)),
    ("buffer.eviction", Word(&["wait", "overlap"])),
    ("packing.policy", Row(|| PACKINGS.iter().map(|row| row.name).collect())),
    ("packing.dlt_entries", Integer(1, 1 << 20)),
    ("lsm.layout", Row(|| LAYOUTS.iter().map(|row| row.name).collect())),
    ("lsm.memtable_entries", Integer(16, 1 << 24)),
    ("lsm.bloom_bits_per_key", Integer(0, 64)),
    ("lsm.bloom_hashes", Integer(1, 64)),
    ("lsm.compaction", Row(|| COMPACTIONS.iter().map(|row| row.name).collect())),
    ("lsm.rings", Integers(4, 3, 1 << 20)),
    ("lsm.table_entry_ns", TIME),
    ("lsm.iterators", Integer(1, 4095)),
    ("flash.channels", Integer(1, 256)),
    ("flash.dies_per_channel", Integer(1, 256)),
    ("flash.planes", Integer(1, 16)),
    ("flash.blocks_per_die", Integer(4, 1 << 20)),
    ("flash.pages_per_block", Integer(4, 1 << 16)),
    ("flash.page_bytes", Multiple(4096, 4096, 1 << 18)),
    ("flash.spare_bytes", Integer(64, 1 << 16)),
    ("flash.timing", Row(|| TIMINGS.iter().map(|row| row.name).collect())),
    ("flash.sense_ns", TIME),
    ("flash.program_ns", TIME),
    ("flash.erase_ns", TIME),
    ("flash.transfer_ns_per_kib", TIME),
    ("flash.uncharged", Parsed(is_uncharged, "a list of OPERATION:PURPOSE[:CHANNEL], as [\"read:data_gc\"]")),
    ("flash.flat.read_latency_ns", TIME),
    ("flash.flat.read_mib_s", Integer(1, 1 << 20)),
    ("flash.flat.write_latency_ns", TIME),
    ("flash.flat.write_mib_s", Integer(1, 1 << 20)),
    ("ftl.over_provisioning", Number(0.02, 0.9)),
    ("ftl.victim", Row(|| VICTIMS.iter().map(|row| row.name).collect())),
    ("ftl.gc_low_blocks", Integer(2, 1 << 20)),
    ("gc.enabled", Flag),
    ("gc.segment_pages", Integer(1, 1 << 20)),
    ("gc.free_segments_low", Integer(1, 1 << 20)),
    ("gc.free_segments_reserved", Integer(1, 1 << 20)),
    ("hash.grain_bytes", OneOf(&[0, 32, 64, 128, 256, 512, 1024])),
    ("hash.unit_bytes", PowerOfTwo(1024, 65536)),
    ("hash.write_buffer_bytes", Integer(1, 1 << 40)),
    ("hash.dram_bytes", Integer(0, 1 << 40)),
    ("hash.dram_accounting", Word(&["published", "total"])),
    ("hash.over_provisioning", Number(0.0, 0.89)),
    ("hash.gc_low_superblocks", Integer(3, 1 << 20)),
    ("hash.gc_stall_superblocks", Integer(2, 1 << 20)),
    ("hash.gc_workers", Integer(1, 1 << 16)),
    ("hash.max_probes", Integer(1, 256)),
    ("hash.hash_bits", Integer(1, 64)),
    ("hash.discard_invalid", Flag),
    ("hash.wait_for_program", Flag),
    ("hash.probe_ns", TIME),
    ("hash.comparison_ns", TIME),
    ("hash.compare_key_ns", TIME),
    ("hash.collision_ns", TIME),
    ("hash.gc_item_ns", TIME),
    ("hash.evict_ns", TIME),
    ("power.protected_bytes", Integer(1, 1 << 40)),
    ("media.kind", Row(|| MEDIA.iter().map(|row| row.name).collect())),
    ("media.path", Text),
    ("media.sync", Flag),
    ("nand.enabled", Flag),
    ("run.seed", Integer(0, i64::MAX)),
    ("run.clock", Word(&["virtual", "wall"])),
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
    ("workload.distribution", Word(&["uniform", "zipfian", "latest"])),
    ("workload.scramble", Flag),
    ("workload.zipf_theta", Number(0.01, 0.999)),
    ("workload.overwrites", Integer(0, 1 << 40)),
    ("workload.timed_load", Flag),
    ("workload.scan_length_max", Integer(1, 1 << 20)),
    ("workload.until_full", Flag),
    ("workload.rate_per_s", Integer(0, 1_000_000_000)),
    ("workload.arrivals", Word(&["fixed", "poisson", "trace"])),
    ("workload.duration_ns", Integer(0, 1 << 60)),
    ("workload.verify", Word(&["off", "values", "only"])),
    ("workload.trace", Text),
    ("workload.trace_format", Text),
];

fn is_uncharged(text: &str) -> bool {
    text.parse::<kvdrive_flash::Uncharged>().is_ok()
}

/// Whether a key may be `value`.
///
/// # Errors
/// A key without a row, a wrong type, a value out of range; the message says what is allowed.
pub(super) fn check(key: &str, value: &Value) -> Result<(), ConfigError> {
    let Some((_, rule)) = RULES.iter().find(|(name, _)| *name == key) else {
        return Err(ConfigError::new(key, "unknown key"));
    };
    if rule.holds(value) {
        return Ok(());
    }
    let given = value.clone().decorated("", "");
    let meant = value.as_str().and_then(|word| nearest(word, &rule.words()));
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    Err(ConfigError::new(key, format!("{given}; allowed: {}{meant}", rule.allowed())))
}

/// What a key may be, in words.
pub(super) fn allowed(key: &str) -> String {
    RULES.iter().find(|(name, _)| *name == key).map_or_else(String::new, |(_, rule)| rule.allowed())
}

impl Rule {
    fn holds(&self, value: &Value) -> bool {
        let integer = |holds: &dyn Fn(i64) -> bool| value.as_integer().is_some_and(holds);
        let number = value.as_float().filter(|x| x.is_finite());
        match self {
            Integer(low, high) => integer(&|n| (*low..=*high).contains(&n)),
            PowerOfTwo(low, high) => integer(&|n| (*low..=*high).contains(&n) && n.count_ones() == 1),
            Multiple(of, low, high) => integer(&|n| (*low..=*high).contains(&n) && n % of == 0),
            OneOf(list) => integer(&|n| list.contains(&n)),
            Number(low, high) => number.is_some_and(|x| (*low..=*high).contains(&x)),
            Positive => number.is_some_and(|x| x > 0.0),
            Word(list) => value.as_str().is_some_and(|word| list.contains(&word)),
            Row(names) => value.as_str().is_some_and(|word| names().contains(&word)),
            Parsed(passes, _) => value
                .as_array()
                .is_some_and(|array| array.iter().all(|text| text.as_str().is_some_and(passes))),
            Text => value.is_str(),
            Flag => value.is_bool(),
            Integers(length, low, high) => value.as_array().is_some_and(|array| {
                array.len() == *length
                    && array.iter().all(|n| n.as_integer().is_some_and(|n| (*low..=*high).contains(&n)))
            }),
        }
    }

    /// The words it may be, if it is one of some.
    fn words(&self) -> Vec<&'static str> {
        match self {
            Word(list) => list.to_vec(),
            Row(names) => names(),
            _ => Vec::new(),
        }
    }

    fn allowed(&self) -> String {
        match self {
            Integer(low, high) => format!("{low} to {high}"),
            PowerOfTwo(low, high) => format!("a power of two, {low} to {high}"),
            Multiple(of, low, high) => format!("a multiple of {of}, {low} to {high}"),
            OneOf(list) => list.iter().map(i64::to_string).collect::<Vec<_>>().join(", "),
            Number(low, high) => format!("{low:?} to {high:?}"),
            Positive => "a number above 0".into(),
            Word(list) => list.join(", "),
            Row(names) => names().join(", "),
            Parsed(_, words) => (*words).into(),
            Text => "text in quotes".into(),
            Flag => "true, false".into(),
            Integers(length, low, high) => format!("{length} integers, each {low} to {high}"),
        }
    }
}

/// A condition between keys: `Some` says what is wrong.
type Condition = fn(&Config) -> Option<String>;

/// Conditions between keys, each with the key to blame.
const CONDITIONS: &[(&str, Condition)] = &[
    ("host.depth", |c| {
        let most = u64::from(c.host.queues) * u64::from(c.host.queue_entries - 1);
        (u64::from(c.host.depth) > most)
            .then(|| format!("{}; host.queues and host.queue_entries hold {most}", c.host.depth))
    }),
    ("controller.cores", |c| {
        let roles = Role::ALL.len();
        let is_looked_at = c.controller.dispatch == "context";
        (is_looked_at && c.controller.roles == "own" && c.controller.cores as usize != roles)
            .then(|| format!("{}; controller.roles = \"own\" takes {roles}, one a role", c.controller.cores))
    }),
    ("gc.free_segments_reserved", |c| {
        (c.gc.free_segments_reserved >= c.gc.free_segments_low).then(|| {
            format!(
                "{}; must be below gc.free_segments_low, {}",
                c.gc.free_segments_reserved, c.gc.free_segments_low
            )
        })
    }),
    ("gc.segment_pages", |c| {
        if c.engine.name != "lsm" {
            return None;
        }
        let segments = c.flash.pages() / u64::from(c.gc.segment_pages);
        let least = 2 * u64::from(c.gc.free_segments_low);
        (segments < least).then(|| {
            format!(
                "{} pages make {segments} segments of the drive; at least {least} (twice gc.free_segments_low)",
                c.gc.segment_pages
            )
        })
    }),
    ("media.path", |c| {
        (c.media.has_file() && c.media.path.is_empty())
            .then(|| format!("empty; media.kind = \"{}\" needs the path of an image", c.media.kind))
    }),
    ("nand.enabled", |c| {
        // Engine lsm has keys and sizes in memory, and says of a value that it is gone.
        (!c.nand.enabled && hash::scheme(&c.engine.name).is_some())
            .then(|| format!("false; engine.name = \"{}\" finds its pairs on flash only", c.engine.name))
    }),
    ("workload.timed_load", |c| {
        (!c.workload.timed_load && c.run.clock == "wall")
            .then(|| "false; by the wall clock loading takes the time it takes: set it to true".into())
    }),
    ("workload.trace", |c| {
        (c.workload.name == "trace" && c.workload.trace.is_empty())
            .then(|| "empty; workload.name = \"trace\" needs the path of one".to_owned())
    }),
    ("workload.arrivals", |c| {
        let problem = match (c.workload.arrivals.as_str(), c.run.clock.as_str()) {
            ("trace", "wall") => "is for model time; set run.clock to virtual",
            ("trace", _) if c.workload.name != "trace" => "is for workload.name = \"trace\"",
            ("trace", _) if c.workload.rate_per_s > 0 => "contradicts workload.rate_per_s; leave out one",
            _ => return None,
        };
        Some(format!("{:?}; {problem}", c.workload.arrivals))
    }),
    ("workload.rate_per_s", |c| {
        (c.workload.rate_per_s > 0 && c.run.clock == "wall")
            .then(|| "is for model time; set run.clock to virtual".to_owned())
    }),
    ("workload.verify", |c| {
        let problem = match c.workload.verify.as_str() {
            "off" => return None,
            _ if c.run.clock == "wall" => "is for model time; set run.clock to virtual",
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
    setup::drive(config).check().map_err(|error| {
        let line = error.to_string();
        let (key, problem) = line.split_once(": ").expect("the line begins with a key");
        ConfigError::new(key, problem)
    })
}
