//! Measures the steps that the model charges, on this machine: the real code of SAKER, of the stores and of
//! the unpacking of batches, at the working set of an experiment.
//!
//! The code defines the steps of its work (`saker::Step`, `store::Step`), and a profile the cost of each.
//! Here the code that reports those steps runs on pages and answers that take no time. Most calls take
//! several steps, so steps are measured one after the other, and the time of a call with one unknown step,
//! less the known ones, is that step's cost:
//!
//! ```text
//!   a get of hashlog that finds nothing      183 ns = 1 probe                              probe        183 ns
//!   a get of hashlog that finds a pair       910 ns = 1 probe + 1 block search + 4096 B    block search 320 ns
//! ```
//!
//! So all time of a call belongs to one of its steps, and a model that charges the steps of a call charges
//! the time of the call here. If a step occurs in no call without another unknown step, two kinds of calls
//! are measured, and their difference is taken. Nothing here is fitted to a published result.
//!
//! A step has one cost in all cases. A search of the cache that hits touches more memory than one that
//! misses; the cost is that of a hit, and the difference is subtracted from the insertion after a miss.
//!
//! | file | what runs |
//! |---|---|
//! | `exercise.rs` | what is timed, and how |
//! | `saker.rs` | pending table, containers, cache |
//! | `stores.rs` | hashlog, lsmtree and btree over pages in memory |
//! | `rocksdb.rs` | RocksDB in place of lsmtree, on its own files in memory, and its row cache in place of SAKER's (feature `rocksdb`) |
//! | `unpack.rs` | the checks and decoding of a structured value in a drive before its requests go to the engine |

mod exercise;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod saker;
mod stores;
mod unpack;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_config::knows_key;
use kvdrive_declare::Words;
use kvdrive_run::Progress;
use kvdrive_sim::wall::today;
use kvdrive_text::with_decimals;
use serde::Serialize;

pub use exercise::WorkingSet;
use exercise::{Exercise, Sample};

/// Exercises with a common working set.
type Group = fn(&WorkingSet) -> Vec<Exercise>;

/// The store on which the steps of an LSM-tree are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum LsmStore {
    /// kvdrive's own.
    Lsmtree,
    /// RocksDB. Its calls are assigned the steps that `lsmtree` takes in the same calls.
    Rocksdb,
}

impl LsmStore {
    /// SAKER's cache: its own code, or that of the store, which the paper takes.
    fn cache(self) -> Group {
        match self {
            #[cfg(feature = "rocksdb")]
            LsmStore::Rocksdb => rocksdb::cache,
            _ => saker::cache,
        }
    }

    /// Its groups, in the order in which they are measured.
    fn groups(self) -> anyhow::Result<&'static [Group]> {
        match self {
            LsmStore::Lsmtree => Ok(&[stores::memtable, stores::tables, stores::merges]),
            #[cfg(feature = "rocksdb")]
            LsmStore::Rocksdb => Ok(&[rocksdb::memtable, rocksdb::tables, rocksdb::merges]),
            #[cfg(not(feature = "rocksdb"))]
            LsmStore::Rocksdb => anyhow::bail!(
                "rocksdb: this program was built without it; it needs librocksdb-dev and `--features rocksdb`"
            ),
        }
    }
}

/// The groups in the order in which they are measured: an exercise takes no step whose cost is found later,
/// except the step that it measures.
fn groups(lsm: LsmStore) -> anyhow::Result<Vec<Group>> {
    let before: [Group; 6] =
        [saker::copies, saker::buffer, lsm.cache(), unpack::exercises, stores::bytes, stores::hashlog];
    let after: [Group; 1] = [stores::tree];
    Ok([&before, lsm.groups()?, &after].concat())
}

/// The cost of a step.
#[derive(Clone, Debug, Serialize)]
pub struct StepCost {
    /// Its key in a configuration; the end of the name is the unit.
    pub key: &'static str,
    /// The median of the repetitions, ns.
    pub ns: f64,
    /// The least of them, ns.
    pub least_ns: f64,
    /// The most, ns.
    pub most_ns: f64,
    /// The data that the calls worked on.
    pub working_set: String,
}

impl StepCost {
    /// The cost in the unit of its key, as a whole number.
    pub fn in_unit(&self) -> u64 {
        let unit = if self.key.ends_with("_ps") { 1000.0 } else { 1.0 };
        (self.ns * unit).round() as u64
    }

    /// Is the difference smaller than the spread of the repetitions?
    pub fn is_too_small(&self) -> bool {
        self.least_ns <= 0.0
    }
}

/// The costs of all steps, with machine and date.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The processor's name.
    pub cpu: String,
    /// The day.
    pub date: String,
    /// Revision of the source.
    pub revision: &'static str,
    /// How often each kind of call was measured.
    pub repetitions: u32,
    /// The costs, in the order in which they were found.
    pub costs: Vec<StepCost>,
    /// Whether it was stopped before all steps were measured.
    pub is_stopped: bool,
}

/// Measures every step. Other programs on this machine lengthen steps: they do not take processor time of this program,
/// but they take room in the processor's caches. If `stop` is set, the steps measured so far are returned.
///
/// # Errors
/// This build lacks the store.
pub fn calibrate(
    set: &WorkingSet,
    lsm: LsmStore,
    progress: Progress<'_>,
    stop: &AtomicBool,
) -> anyhow::Result<Calibration> {
    let mut known: BTreeMap<&'static str, f64> = BTreeMap::new();
    let (mut costs, groups) = (Vec::new(), groups(lsm)?);
    let is_stopped = || stop.load(Ordering::Relaxed);
    'groups: for (done, group) in groups.iter().enumerate() {
        progress(done as u64, groups.len() as u64);
        for mut exercise in group(set) {
            (exercise.repeat)();
            let repeats = (0..set.repetitions).take_while(|_| !is_stopped());
            let mut found: Vec<f64> =
                repeats.map(|_| rest(&(exercise.repeat)(), exercise.cost, &known)).collect();
            if is_stopped() {
                break 'groups;
            }
            found.sort_by(f64::total_cmp);
            let middle = f64::midpoint(found[(found.len() - 1) / 2], found[found.len() / 2]).max(0.0);
            known.insert(exercise.cost, middle);
            costs.push(StepCost {
                key: exercise.cost,
                ns: middle,
                least_ns: found[0],
                most_ns: found[found.len() - 1],
                working_set: exercise.working_set,
            });
        }
    }
    progress(groups.len() as u64, groups.len() as u64);
    Ok(Calibration {
        cpu: cpu_name(),
        date: today(),
        revision: kvdrive_run::revision::of_program(),
        repetitions: set.repetitions,
        costs,
        is_stopped: is_stopped(),
    })
}

/// The time of a sample that is left for the step `cost`, ns: the known steps are subtracted.
fn rest(sample: &Sample, cost: &'static str, known: &BTreeMap<&'static str, f64>) -> f64 {
    let others = sample.steps.iter().filter(|(step, _)| **step != cost);
    let taken: f64 = others.map(|(step, count)| count * known.get(step).copied().unwrap_or_default()).sum();
    let times = sample.steps.get(cost).copied().unwrap_or_default();
    assert!(times > 0.0, "{cost} was not done: {:?}", sample.steps);
    (sample.ns - taken) / times
}

/// The processor's name under Linux; elsewhere its architecture.
fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = format!("of {} repetitions", self.repetitions);
        writeln!(f, "{}, {}, measured: median, least and most {of}, ns", self.cpu, self.date)?;
        let width = self.costs.iter().map(|cost| cost.key.len()).max().unwrap_or(0);
        writeln!(f, "\n{:width$}{:>10}{:>10}{:>10}   working set", "step", "ns", "least", "most")?;
        for cost in &self.costs {
            let [ns, least, most] = [cost.ns, cost.least_ns, cost.most_ns].map(digits);
            let note = if cost.is_too_small() { "   (too small to tell)" } else { "" };
            // The column has the unit, which is not that of every key.
            let step = cost.key.trim_end_matches("_ns").trim_end_matches("_ps");
            writeln!(f, "{step:width$}{ns:>10}{least:>10}{most:>10}   {}{note}", cost.working_set)?;
        }
        Ok(())
    }
}

/// A time with its significant decimals.
fn digits(ns: f64) -> String {
    let decimals = match ns.abs() {
        small if small < 1.0 => 3,
        small if small < 100.0 => 1,
        _ => 0,
    };
    with_decimals(ns, decimals)
}

impl Calibration {
    /// The costs as a file for `--config`.
    pub fn to_toml(&self) -> String {
        let mut text = format!(
            "# kvdrive calibrate, revision {}: times of the steps of SAKER and of stores, measured on one machine.\n",
            self.revision
        );
        let known: Vec<_> = self.costs.iter().filter(|cost| knows_key(cost.key)).collect();
        let sections: std::collections::BTreeSet<_> = known.iter().map(|cost| split(cost.key).0).collect();
        for section in sections {
            let _ = writeln!(text, "\n[{section}]");
            for cost in known.iter().filter(|cost| split(cost.key).0 == section) {
                let [ns, least, most] = [cost.ns, cost.least_ns, cost.most_ns].map(digits);
                let note = if cost.is_too_small() { " (too small to tell)" } else { "" };
                let _ = writeln!(
                    text,
                    "# [measured] {ns} ns, {least} to {most} in {} repetitions{note}; {}; {}, {}.\n{} = {}",
                    self.repetitions,
                    cost.working_set,
                    self.cpu,
                    self.date,
                    split(cost.key).1,
                    cost.in_unit()
                );
            }
        }
        text
    }
}

fn split(key: &'static str) -> (&'static str, &'static str) {
    key.split_once('.').expect("a key has a section")
}

#[cfg(test)]
mod tests {
    use super::exercise::Steps;
    use super::*;

    /// Calls of two kinds, of one and of two steps: the second step costs the time that the first one leaves.
    #[test]
    fn what_known_steps_leave_is_the_new_ones() {
        let known = BTreeMap::from([("a", 10.0)]);
        let sample = Sample { ns: 100.0, steps: Steps::from([("a", 4.0), ("b", 2.0)]) };
        assert_eq!(rest(&sample, "b", &known), 30.0);
        let fewer = Sample { ns: 60.0, steps: Steps::from([("a", 4.0), ("b", 0.0)]) };
        assert_eq!(rest(&sample.minus(&fewer), "b", &known), 20.0);
    }

    #[test]
    fn every_step_is_measured_once_and_before_it_is_needed() {
        assert_every_step_is_measured(LsmStore::Lsmtree);
    }

    #[cfg(feature = "rocksdb")]
    #[test]
    fn every_step_of_lsmtree_is_measured_on_rocksdb() {
        assert_every_step_is_measured(LsmStore::Rocksdb);
    }

    /// Each step that a store or SAKER may take has its cost, found before it is needed, and none is found
    /// twice.
    fn assert_every_step_is_measured(lsm: LsmStore) {
        let set = WorkingSet { pairs: 3000, value_bytes: 16, repetitions: 1 };
        let mut found: Vec<&str> = Vec::new();
        for mut exercise in groups(lsm).unwrap().iter().flat_map(|group| group(&set)) {
            (exercise.repeat)();
            let sample = (exercise.repeat)();
            found.push(exercise.cost);
            // A step that cancels out in a difference is not unknown in it.
            let unknown =
                sample.steps.iter().find(|(step, count)| count.abs() > 1e-3 && !found.contains(step));
            assert_eq!(unknown, None, "{}", exercise.cost);
        }
        let mut keys: Vec<String> =
            kvdrive_store::Step::ALL.iter().map(|(step, _)| step.key().to_owned()).collect();
        keys.extend(saker::KEYS.map(str::to_owned));
        keys.push("controller.unpack_ns".into());
        keys.sort();
        found.sort_unstable();
        assert_eq!(found, keys);
    }

    /// The output is a file that a configuration accepts, with a source for every number.
    #[test]
    fn the_file_can_be_laid_over_a_profile() {
        // The smallest working set that the command accepts.
        let set = WorkingSet { pairs: 1000, value_bytes: 16, repetitions: 2 };
        let calibration = calibrate(&set, LsmStore::Lsmtree, &|_, _| {}, &AtomicBool::new(false)).unwrap();
        let (text, mut document) =
            (calibration.to_toml(), kvdrive_config::Document::profile("saker-mid").unwrap());
        document.merge_text("costs.toml", &text).unwrap();
        let probe = calibration.costs.iter().find(|cost| cost.key == "store.probe_ps").unwrap();
        assert_eq!(
            document.config().unwrap().engines.stored.costs.0[kvdrive_store::Step::Probe as usize],
            probe.in_unit()
        );
        let keys = text.lines().filter(|line| line.contains(" = ")).count();
        let sources = text.lines().filter(|line| line.starts_with("# [measured] ")).count();
        assert!(keys >= 18 && keys == sources, "{text}");
        assert!(text.contains(&calibration.cpu) && text.contains(&calibration.date), "{text}");
    }
}
