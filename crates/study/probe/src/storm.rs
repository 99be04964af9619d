//! Random drives under random loads, with failing flash and power cuts, for as long as the command runs.
//!
//! A case is determined by its seed: engine, settings, load, faults, number of cuts and of lives.
//! [`crash`](crate::crash) executes a case and checks every pair. A failing case is [`shrunk`]: settings,
//! faults and operations are left out as long as the case still fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kvdrive_config::Document;
use kvdrive_config::faults;
use kvdrive_device::engines::ENGINES;
use kvdrive_engines::lsm::compaction::COMPACTIONS;
use kvdrive_engines::lsm::layout::LAYOUTS;
use kvdrive_engines::packing::PACKINGS;
use kvdrive_link::transfer::METHODS;
use kvdrive_nvme::Status;
use kvdrive_sim::Rng;

use crate::crash::{Cuts, LoadRefused, Trial, Verdict};

/// One case in this many has its drive on a file; its cuts are kills of a process.
const ON_FILE: u64 = 5;

/// Settings that a case may have. From an entry (n, texts) one case in n gets one of the texts, with all
/// settings in it. Settings that the case's drive cannot have or ignores are left out.
const EXTRAS: &[(u64, &[&str])] = &[
    (2, &["controller.contexts=2", "controller.contexts=4"]),
    (2, &["host.depth=4", "host.depth=8", "host.depth=16"]),
    (3, &["host.queues=2", "host.cores=2"]),
    (4, &["controller.dispatch=round-robin"]),
    (4, &["flash.timing=flat"]),
    (3, &["workload.key_size=17", "workload.key_size=40", "workload.key_size=255"]),
    (2, &["media.kind=ram"]),
    (3, &["buffer.eviction=overlap"]),
    (3, &["lsm.memtable_entries=100", "lsm.memtable_entries=16"]),
    (
        3,
        &[
            "anykey.memtable_entries=16",
            "anykey.group_pages=8",
            "anykey.write_back=true",
            "anykey.dram_bytes=4000",
        ],
    ),
    (3, &["gc.segment_pages=16"]),
    (3, &["ftl.victim=cost-benefit"]),
    (2, &["store.operations_bytes=65536", "store.operations_bytes=16384"]),
    (3, &["hashlog.segment_bytes=262144"]),
    (3, &["saker.enabled=true saker.container_bytes=4096", "saker.enabled=true saker.container_bytes=16384"]),
    (3, &["lsm.dram_bytes=30000 lsm.pinned_levels=2", "lsm.dram_bytes=300000 lsm.dram_eviction=fifo"]),
];

/// Rules by which flash fails; a case has one of them or none. None of them makes the drive lose a pair.
const FAULTS: &[&str] = &[
    "[[rule]]\nfault = \"program-error\"\nprobability = 0.02\n",
    "[[rule]]\nfault = \"program-error\"\nprobability = 0.01\n[[rule]]\nfault = \"erase-error\"\nprobability = 0.1\n",
    "[[rule]]\nfault = \"delay\"\nprobability = 0.05\ndelay_ns = 2000000\n",
];

/// Bytes of a value; most bytes of all pairs of a case together; and settings of a drive that takes such
/// values. The page buffer of a small `lsm` takes 48 KiB of one value, small hash engines take 32 KiB, and
/// stores over pages 8 to 60 KiB: a larger value is written to flash while it arrives, beside the value that
/// it replaces, so the drive has more room.
const VALUES: &[(u64, u64, &str)] = &[
    (8, 5 << 20, ""),
    (100, 5 << 20, ""),
    (1000, 5 << 20, ""),
    (4096, 5 << 20, ""),
    (9000, 5 << 20, ""),
    (30_000, 5 << 20, ""),
    (60_000, 5 << 20, ""),
    (300_000, 2 << 20, "controller.max_value_bytes=524288 "),
];
/// Most bytes of the values of a case's operations together.
const OPERATIONS_MAX_BYTES: u64 = 24 << 20;

const WORKLOADS: &[&str] =
    &["fillrandom", "ycsb-a", "ycsb-b", "ycsb-e", "ycsb-f", "w-a", "w-b", "w-d", "mixgraph"];

/// One case of a storm.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// Its engine.
    pub engine: &'static str,
    /// Settings that override profile `cosmos-plus`.
    pub sets: Vec<String>,
    /// Rules by which flash fails; empty: none.
    pub faults: &'static str,
    /// Power cuts.
    pub cuts: u64,
    /// Lives of a drive that continues after a cut.
    pub lives: u32,
}

/// A case that failed, and the failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The case.
    pub case: Case,
    /// The lost pair, or the message of a panic.
    pub what: String,
}

impl Case {
    /// The case of a seed.
    pub fn of_seed(seed: u64) -> Case {
        let mut rng = Rng::stream(seed, "storm of drives");
        let pick = |rng: &mut Rng, count: usize| rng.below(count as u64) as usize;
        let engine = ENGINES[pick(&mut rng, ENGINES.len())].name;
        let mut wanted = vec![
            format!("run.seed={}", rng.below(1 << 32)),
            format!("host.transfer={}", METHODS[pick(&mut rng, METHODS.len())].name),
            format!("packing.policy={}", PACKINGS[pick(&mut rng, PACKINGS.len())].name),
            format!("lsm.layout={}", LAYOUTS[pick(&mut rng, LAYOUTS.len())].name),
            format!("lsm.compaction={}", COMPACTIONS[pick(&mut rng, COMPACTIONS.len())].name),
            format!("workload.name={}", WORKLOADS[pick(&mut rng, WORKLOADS.len())]),
            // A drive of 24 blocks per die is nearly full.
            format!("flash.blocks_per_die={}", [24, 32, 64][pick(&mut rng, 3)]),
        ];
        let (value_bytes, pairs_max_bytes, taken_with) = VALUES[pick(&mut rng, VALUES.len())];
        let (pairs, operations) = (50 + rng.below(600), 200 + rng.below(1500));
        wanted.push(format!("workload.num={}", pairs.min(pairs_max_bytes / value_bytes)));
        wanted.push(format!("workload.ops={}", operations.min(OPERATIONS_MAX_BYTES / value_bytes)));
        wanted.push(format!("{taken_with}workload.value_size={value_bytes}"));
        for (one_in, settings) in EXTRAS {
            if rng.one_in(*one_in) {
                wanted.push(settings[pick(&mut rng, settings.len())].to_owned());
            }
        }
        if rng.one_in(ON_FILE) {
            wanted.push("media.kind=file".to_owned());
        }
        let faults = if rng.one_in(2) { FAULTS[pick(&mut rng, FAULTS.len())] } else { "" };
        if faults.contains("error") {
            wanted.push("flash.spare_blocks=64".to_owned());
        }
        let (cuts, lives) = (3 + rng.below(6), 1 + rng.below(3) as u32);
        let mut case = Case {
            seed,
            engine,
            sets: SMALL.iter().map(|set| (*set).to_owned()).collect(),
            faults,
            cuts,
            lives,
        };
        // Settings that this drive cannot have or ignores are left out.
        for set in wanted {
            let mut with = case.clone();
            let key_of = |set: &str| set.split('=').next().map(str::to_owned);
            for set in set.split(' ') {
                with.sets.retain(|other| key_of(other) != key_of(set));
                with.sets.push(set.to_owned());
            }
            if with.is_possible() {
                case = with;
            }
        }
        case.drop_ignored();
        case.fit();
        case
    }

    /// Leaves fewer operations where a command would refuse the load, since all of its values together exceed the flash.
    fn fit(&mut self) {
        let has_room = |case: &Case| {
            let config = case.document().and_then(|document| Ok(document.config()?));
            config.is_ok_and(|config| config.check_room().is_ok())
        };
        while !has_room(self) {
            let Some(ops) = self.sets.iter_mut().find(|set| set.starts_with(OPS)) else { return };
            match ops[OPS.len()..].parse::<u64>() {
                Ok(operations) if operations > 1 => *ops = format!("{OPS}{}", operations / 2),
                _ => return,
            }
        }
    }

    /// Leaves out settings that this drive ignores, since a command refuses them.
    fn drop_ignored(&mut self) {
        let config = self.document().and_then(|document| Ok(document.config()?));
        let Ok(config) = config else { return };
        let is_looked_at = |set: &String| config.ignores(set.split('=').next().unwrap_or(set)).is_none();
        self.sets.retain(is_looked_at);
    }

    fn is_possible(&self) -> bool {
        self.document().is_ok_and(|document| document.config().is_ok())
    }

    /// The configuration of the drive and the load.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn document(&self) -> anyhow::Result<Document> {
        let mut document = Document::profile("cosmos-plus").map_err(anyhow::Error::msg)?;
        document.set(&format!("engine.name={}", self.engine))?;
        self.sets.iter().try_for_each(|set| document.set(set))?;
        document.name_image()?;
        Ok(document)
    }

    /// Runs the case.
    ///
    /// # Errors
    /// The failure, also of a panic.
    pub fn run(&self) -> Result<Verdict, String> {
        let ran = catch_unwind(AssertUnwindSafe(|| self.verdict()));
        let verdict = match ran {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => return Err(format!("{error:#}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
                return Err(format!("panic: {text}"));
            }
        };
        match &verdict.lost {
            None => Ok(verdict),
            Some(lost) => Err(format!("power cut after event {}: {}", lost.event, lost.what)),
        }
    }

    fn verdict(&self) -> anyhow::Result<Verdict> {
        let document = self.document()?;
        let config = document.config()?;
        let rules = faults::rules("faults", self.faults, &config.drive().flash.geometry())?;
        let cuts = Cuts::Random(self.cuts);
        let trial = Trial { rules: &rules, cuts, beside: true, lives: self.lives, mutant: None };
        let ran = trial.run(&document);
        let refused = ran.as_ref().err().and_then(|error| error.downcast_ref::<LoadRefused>());
        match refused {
            // The drive is too small for the pairs that the workload begins with, so there is no case.
            Some(LoadRefused { status: Status::CAPACITY_EXCEEDED, .. }) => Ok(Verdict::default()),
            _ => ran,
        }
    }
}

/// Settings of a drive on which a thousand operations flush, merge, collect and synchronise: a few MiB of
/// flash, segments of 128 KiB, 32 entries in the memtable.
pub const SMALL: &[&str] = &[
    "flash.channels=2",
    "flash.dies_per_channel=1",
    "flash.pages_per_block=8",
    "ftl.gc_low_blocks=2",
    "ftl.over_provisioning=0.2",
    "buffer.entries=12",
    "packing.dlt_entries=8",
    "lsm.memtable_entries=32",
    "lsm.rings=[3,3,4,64]",
    "anykey.memtable_entries=32",
    "anykey.group_pages=4",
    "anykey.levels=3",
    "anykey.log_percent=10",
    "lsm.iterators=4",
    "gc.segment_pages=8",
    "gc.free_segments_low=6",
    "gc.free_segments_reserved=3",
    "hash.write_buffer_bytes=262144",
    "hash.dram_bytes=16384",
    "hash.gc_low_superblocks=6",
    "hash.gc_stall_superblocks=3",
    "hash.gc_workers=4",
    "store.operations_bytes=131072",
    "controller.max_value_bytes=65536",
];

const OPS: &str = "workload.ops=";

/// Settings whose default in a command differs from the profile's: without them a command would not repeat
/// the case.
const KEPT: &[&str] = &["workload.num=", OPS, "store.operations_bytes="];

/// The smallest variant of `failure`'s case that still fails, after at most `tries` further runs.
pub fn shrunk(failure: Failure, tries: u32) -> Failure {
    let mut least = failure;
    let mut left = tries;
    let fails = |case: Case, left: &mut u32| -> Option<Failure> {
        if *left == 0 || !case.is_possible() {
            return None;
        }
        *left -= 1;
        case.run().err().map(|what| Failure { case, what })
    };
    if !least.case.faults.is_empty()
        && let Some(less) = fails(Case { faults: "", ..least.case.clone() }, &mut left)
    {
        least = less;
    }
    let mut at = least.case.sets.len();
    while at > 0 {
        at -= 1;
        if KEPT.iter().any(|key| least.case.sets[at].starts_with(key)) {
            continue;
        }
        let mut case = least.case.clone();
        case.sets.remove(at);
        if let Some(less) = fails(case, &mut left) {
            least = less;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting that no drive can have, such as one with a renamed key, would be left out of every case.
    #[test]
    fn every_extra_setting_is_in_some_case() {
        let cases: Vec<Case> = (0..240).map(Case::of_seed).collect();
        let is_drawn = |setting: &str| cases.iter().any(|case| case.sets.iter().any(|set| set == setting));
        let extras = EXTRAS.iter().flat_map(|(_, texts)| texts.iter()).flat_map(|text| text.split(' '));
        let never: Vec<&str> = extras.filter(|setting| !is_drawn(setting)).collect();
        assert_eq!(never, Vec::<&str>::new());
    }
}
