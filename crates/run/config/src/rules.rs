//! All settings, and the conditions between settings of several crates.
//!
//! A value is checked when it is set, so that the message can name the key. Conditions between keys are
//! checked when the configuration is built.

use kvdrive_declare::{Problem as ConfigError, Rule, Section, Setting, When, settings};
use kvdrive_device::engines::BLOCK;
use kvdrive_engines::hash;
use kvdrive_store::STORES;
use kvdrive_text::grouped;
use kvdrive_text::names::nearest;
use kvdrive_text::scaled::bytes;
use once_cell::race::OnceBox;
use toml_edit::Value;

use crate::plain;
use crate::sections::Config;

/// Pairs that are on the drive before a trace.
const LOAD: &str = "workload.load";

/// Every setting with all conditions under which a run reads it, in the order of the declarations.
fn with_conditions() -> &'static [(&'static Setting, Vec<&'static When>)] {
    static SETTINGS: OnceBox<Vec<(&'static Setting, Vec<&'static When>)>> = OnceBox::new();
    SETTINGS.get_or_init(|| Box::new(settings(Config::ENTRIES)))
}

/// Every setting, in the order of the declarations.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    with_conditions().iter().map(|(setting, _)| *setting)
}

/// Every key with its rule, in the order of the declarations.
pub fn rules() -> impl Iterator<Item = (&'static str, &'static Rule)> {
    all().map(|setting| (setting.key, &setting.rule))
}

/// The setting of a key; `None`: there is no such key.
pub fn setting(key: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.key == key)
}

/// The conditions under which a run reads a setting.
pub fn conditions(key: &str) -> &'static [&'static When] {
    let found = with_conditions().iter().find(|(setting, _)| setting.key == key);
    found.map_or(&[], |(_, conditions)| conditions)
}

/// What a key may be; `None`: there is no such key.
pub(super) fn rule(key: &str) -> Option<&'static Rule> {
    setting(key).map(|setting| &setting.rule)
}

/// A value as messages show it, on one line.
pub(super) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.clone().decorated("", "").to_string(), |text| format!("{text:?}"))
}

/// Checks that `value` is allowed for a key.
///
/// # Errors
/// The key is no setting, or the value has a wrong type or is out of range; the message says what is allowed.
pub(super) fn check(key: &str, value: &Value) -> Result<(), ConfigError> {
    let Some(rule) = rule(key) else {
        return Err(ConfigError::new(key, "unknown key"));
    };
    if rule.allows(&plain::of_value(value)) {
        return Ok(());
    }
    let given = shown(value);
    let meant = value.as_str().and_then(|word| nearest(word, &rule.words()));
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    Err(ConfigError::new(key, format!("{given}; allowed: {}{meant}", rule.allowed())))
}

/// The allowed values of a key, in words.
pub(super) fn allowed(key: &str) -> String {
    rule(key).map_or_else(String::new, Rule::allowed)
}

/// A condition between keys: `Some` is the problem, if it does not hold.
type Condition = fn(&Config) -> Option<String>;

/// Conditions between keys, each with the key that messages name.
const CONDITIONS: &[(&str, Condition)] = &[
    ("host.depth", |c| {
        let most = u64::from(c.queue_pairs()) * u64::from(c.host.queue_entries - 1);
        let pairs = if c.threads().is_some() { "host.threads" } else { "host.queues" };
        (!c.saker.enabled && u64::from(c.host.depth) > most)
            .then(|| format!("{}; {pairs} and host.queue_entries hold {most}", c.host.depth))
    }),
    ("engine.name", |c| {
        (c.has_blocks() && !c.has_store_on_host() && !c.serves_hosts).then(|| {
            let stores: Vec<_> = STORES.iter().map(|row| row.name).collect();
            format!("\"block\" takes no pairs; host.store may be {}", stores.join(", "))
        })
    }),
    ("host.store", |c| {
        let problem = match (c.has_store_on_host(), c.engine.name.as_str()) {
            (true, engine) if engine != BLOCK.name => {
                format!("needs a drive of blocks; engine.name is \"{engine}\", set it to \"block\"")
            }
            (true, _) if c.media.has_file() => "is for a drive in memory; set media.kind to tags".to_owned(),
            _ => return None,
        };
        Some(format!("\"{}\" {problem}", c.host.store))
    }),
    ("saker.enabled", |c| {
        let problem = match c.saker.enabled {
            true if c.has_store_on_host() => {
                "SAKER needs a drive of pairs, and a store on the host has a drive of blocks"
            }
            true if c.workload.until_full => {
                "SAKER learns only at a sync that a pair did not fit; leave out workload.until_full"
            }
            _ => return None,
        };
        Some(format!("true; {problem}"))
    }),
    ("saker.in_flight", |c| {
        // One slot is for reads and for writes that bypass batches.
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
        // Engine `lsm` has keys and sizes in memory, and answers that the value is lost.
        (!c.flash.enabled && hash::scheme(&c.engine.name).is_some())
            .then(|| format!("false; engine.name = \"{}\" keeps its pairs on flash only", c.engine.name))
    }),
    ("workload.timed_load", |c| {
        if !c.workload.timed_load && c.has_store_on_host() {
            return Some("false; a store on the host is loaded by its threads: set it to true".into());
        }
        if !c.workload.timed_load && c.workload.has_units() {
            return Some("false; rows of tpcc are bytes, which clients have to store: set it to true".into());
        }
        (!c.workload.timed_load && c.run.clock == "wall")
            .then(|| "false; with run.clock = \"wall\", loading takes time: set it to true".into())
    }),
    ("workload.atomic", |c| {
        let has_store = c.workload.atomic && c.workload.has_units() && c.has_store_on_host();
        has_store.then(|| "true; needs a drive of pairs, and blocks have no batches".to_owned())
    }),
    ("saker.container_bytes", |c| {
        let needed = c.workload.unit_bytes().filter(|_| c.workload.atomic && c.saker.enabled)?;
        (u64::from(c.saker.container_bytes) < needed).then(|| {
            let name = &c.workload.name;
            format!(
                "{}; workload.atomic sends a transaction of {name} as one batch, in a container of its own, and the largest \
                 has {needed} bytes: set it to that or more",
                c.saker.container_bytes
            )
        })
    }),
    ("workload.trace", |c| {
        (c.workload.name == "trace" && c.workload.trace.is_empty())
            .then(|| "empty; workload.name = \"trace\" needs the path of one".to_owned())
    }),
    ("workload.arrivals", |c| {
        let problem = match c.workload.arrivals.as_str() {
            "trace" if !c.workload.ends() => "is for a workload that is read from a file, trace or kvcache",
            "trace" if c.workload.rate_per_s > 0 => "contradicts workload.rate_per_s; leave one of them out",
            _ => return None,
        };
        Some(format!("{:?}; {problem}", c.workload.arrivals))
    }),
    ("workload.verify", |c| {
        let problem = match c.workload.verify.as_str() {
            "off" => return None,
            _ if c.workload.has_units() => "is for generated values; tpcc checks its own rows at the end",
            "only" if !c.media.has_file() => "reads the pairs of an image; set media.kind to file",
            "only" if c.workload.duration_ns > 0 || c.workload.until_full => {
                "needs the number of operations that were done; leave out workload.duration_ns and until_full"
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

impl Config {
    /// Refuses a workload whose values have more bytes than the drive has flash, since it would fill the
    /// drive. A run checks this before it begins.
    ///
    /// # Errors
    /// The key that determines the number of values, with both sizes.
    pub fn check_room(&self) -> Result<(), ConfigError> {
        match self.flash.enabled {
            true => self.check_room_in(self.flash.geometry().data_bytes(), "the drive has", "of flash"),
            false => Ok(()),
        }
    }

    /// Refuses more scans at a time than the drive has iterators: most operations of such a workload would fail.
    /// Commands check this before they run; a drive on a network has iterators of its own.
    ///
    /// # Errors
    /// The depth, and the iterators.
    pub fn check_scans(&self) -> Result<(), ConfigError> {
        let (depth, most) = (self.host.depth, self.controller.iterators);
        // With SAKER, and with a store on the host, a thread does one operation at a time.
        let is_one_a_thread = self.saker.enabled || self.has_store_on_host();
        if !self.workload.scans() || is_one_a_thread || depth <= most {
            return Ok(());
        }
        let problem = format!(
            "{depth}; so many scans of {} would be open at once, and the drive has {most} iterators: set host.depth to that \
             or less, or lsm.iterators to {depth}",
            self.workload.name
        );
        Err(ConfigError::new("host.depth", problem))
    }

    /// The same as [`check_room`](Config::check_room) for drives whose namespaces have `bytes` in all.
    ///
    /// # Errors
    /// As [`check_room`](Config::check_room).
    pub fn check_room_of(&self, bytes: u64, drives: usize) -> Result<(), ConfigError> {
        self.check_room_in(bytes, have(drives), "of room")
    }

    fn check_room_in(&self, has_bytes: u64, has: &str, what: &str) -> Result<(), ConfigError> {
        let refused = |key, values: u64, each: u32, least: &str| {
            let all = u128::from(values) * u128::from(each);
            if all <= u128::from(has_bytes) {
                return Ok(());
            }
            let (values, each) = (grouped(values), grouped(each.into()));
            let (all, room) = (bytes(all as f64), bytes(has_bytes as f64));
            let problem = format!("{least}{values} values of {each} B are {all}, and {has} {room} {what}");
            Err(ConfigError::new(key, problem))
        };
        if let Some((values, each)) = self.workload.stated_load() {
            refused(LOAD, values, each, "")?;
        }
        let Some((key, values)) = self.workload.least_values() else { return Ok(()) };
        refused(key, values, self.workload.value_size, "at least ")
    }

    /// Refuses pairs that `workload.load` puts on the drive, if their `load_bytes` bytes of values do not fit: known once
    /// the workload is built.
    ///
    /// # Errors
    /// The setting, with both sizes.
    pub fn check_load(&self, pairs: u64, load_bytes: u64) -> Result<(), ConfigError> {
        match self.flash.enabled {
            true => {
                let room = self.flash.geometry().data_bytes();
                check_load_in(pairs, load_bytes, room, "the drive has", "of flash")
            }
            false => Ok(()),
        }
    }
}

/// As [`Config::check_load`], for drives whose namespaces have `room_bytes` in all.
///
/// # Errors
/// As there.
pub fn check_load_of(pairs: u64, load_bytes: u64, room_bytes: u64, drives: usize) -> Result<(), ConfigError> {
    check_load_in(pairs, load_bytes, room_bytes, have(drives), "of room")
}

fn have(drives: usize) -> &'static str {
    if drives > 1 { "the drives have" } else { "the drive has" }
}

fn check_load_in(
    pairs: u64,
    load_bytes: u64,
    has_bytes: u64,
    has: &str,
    what: &str,
) -> Result<(), ConfigError> {
    if load_bytes <= has_bytes {
        return Ok(());
    }
    let [all, room] = [load_bytes, has_bytes].map(|of| bytes(of as f64));
    let pairs = grouped(pairs);
    Err(ConfigError::new(LOAD, format!("{pairs} values are {all}, and {has} {room} {what}")))
}

/// Checks the conditions between keys, those of the drive and those in this module.
///
/// # Errors
/// The first condition that does not hold.
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
