//! Speed and memory of this program on this machine: the figures of `kvdrive bench`.
//!
//! | figure | kind | what runs |
//! |---|---|---|
//! | simulated stores a second | measured | W(M), every layer on, in virtual time on one core |
//! | the same per CPU second | measured | without the time in which other programs had the core; Linux only |
//! | events per store | counted | the same |
//! | deepest stack | measured | the same: the most stack that a task had in use when it was suspended |
//! | instructions per store | counted | the same under `perf` or `valgrind`, if the machine has one that works |
//! | resident bytes per pair | measured | 1000 B values by `prp` on `tags` media, in a process of its own |
//! | hash engine's loads a second | measured | `plus` on `kvvirt`: load and overwrites in no model time, at a part of the paper's size |
//! | its operations a second | measured | A uniform after them, in virtual time |
//! | its resident bytes | measured | the same, in a process of its own |
//! | simulated requests a second | measured | stores on either side of the wire, in virtual time ([`stores`]) |
//! | served stores a second | measured | 32 B values at depth 32 from one thread, the drive unpaced on another |
//! | an idle drive's share of a core | measured | a drive that is served unpaced without commands; Linux only |
//! | its wake-ups a second | counted | the same |
//!
//! Seconds depend on the other load of the machine, so the best of several runs is shown, and all are in the
//! JSON. Nothing here is modelled.

pub mod connected;
mod process;
mod speed;
pub mod stores;
mod table;

use std::cell::Cell;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvdrive_host::threaded::serve_thread;
use kvdrive_link::shared::ServerConfig;
use kvdrive_sim::wall::{Pace, Stopwatch};
use serde::{Deserialize, Serialize};

use kvdrive_config::{Document, Scale};
use kvdrive_run::memory::{ProcessMemory, fit};
use kvdrive_run::report::Report;
use kvdrive_run::wall::{WallOptions, run_wall_watched, served};
use kvdrive_run::{Progress, Watch, run_counted};
pub use process::output;
pub use speed::Speed;
use speed::thread_cpu_seconds;
use stores::Simulated;

const PROFILE: &str = "cosmos-plus";
const HASH_PROFILE: &str = "kvvirt";
/// Size of the values that fill the memory, bytes.
const MEMORY_VALUE_BYTES: u32 = 1000;
/// Size of the values that are served, bytes: such a store is one command.
const WALL_VALUE_BYTES: u32 = 32;
/// Commands under way at once when serving.
const WALL_DEPTH: u32 = 32;

/// The result of a counter of instructions.
#[derive(Clone, Debug, Serialize)]
pub struct Instructions {
    /// Instructions per store, in user mode; `None`: no counter works here.
    pub per_store: Option<f64>,
    /// The counter that was used.
    pub counter: Option<&'static str>,
    /// Number of stores that were counted.
    pub stores: u64,
}

/// A hash engine with collection running, in a process of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Collecting {
    /// Part of the paper's size, as configurations write it.
    pub scale: String,
    /// Load and overwrites, in no model time.
    pub loading: Speed,
    /// The workload after them.
    pub speed: Speed,
    /// Peak resident bytes of the process; `None` if the system does not report it.
    pub peak_bytes: Option<u64>,
    /// The most of its stack that a task had in use when it was suspended.
    pub deepest_stack_bytes: usize,
}

/// Memory of a process that holds many pairs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Pairs stored.
    pub pairs: u64,
    /// Peak resident bytes of the process; `None` if the system does not report it.
    pub peak_bytes: Option<u64>,
    /// Resident bytes before the drive was powered on.
    pub before_bytes: Option<u64>,
    /// Bytes of the process in huge pages at the end, and its page faults.
    pub huge_page_bytes: u64,
    /// Page faults of the process.
    pub page_faults: u64,
}

/// The size of the drives that are served here: real bytes are stored in them.
#[derive(Clone, Debug)]
pub struct DriveSize {
    blocks_per_die: u32,
    /// Bytes of flash.
    pub bytes: u64,
    /// A line about it, unless it is exactly the size that was asked for.
    pub note: Option<String>,
}

impl DriveSize {
    /// The size that the user asked for, or one that fits this machine's memory.
    ///
    /// # Errors
    /// There is no drive of that size.
    pub fn of(asked: Option<&str>) -> anyhow::Result<DriveSize> {
        let mut document = document(&[])?;
        let note = match asked {
            Some(size) => {
                document.set(&format!("flash.capacity={size}"))?;
                document.config()?;
                document.rounded_capacity()
            }
            None => fit([&mut document].into_iter(), "--capacity")?.pop(),
        };
        let flash = document.config()?.flash;
        Ok(DriveSize { blocks_per_die: flash.blocks_per_die, bytes: flash.geometry().data_bytes(), note })
    }

    fn setting(&self) -> String {
        format!("flash.blocks_per_die={}", self.blocks_per_die)
    }
}

impl Memory {
    /// Resident bytes per pair.
    pub fn bytes_per_pair(&self) -> Option<f64> {
        Some((self.peak_bytes? - self.before_bytes?) as f64 / self.pairs.max(1) as f64)
    }
}

/// A drive that is served and gets no commands.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Idle {
    /// Duration without commands, s.
    pub seconds: f64,
    /// The part of that time in which its thread was on a core, s; `None` if the system does not report it.
    pub cpu_seconds: Option<f64>,
    /// How often it woke up.
    pub wake_ups: u64,
}

/// All figures; those that are not measured yet are `None`.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Revision of the source.
    pub revision: &'static str,
    /// Cores the program may use.
    pub cores: usize,
    /// Processor architecture and operating system.
    pub machine: String,
    /// Stores in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Speed>,
    /// Instructions of such a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
    /// Memory of a drive with many pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// A hash engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collecting: Option<Collecting>,
    /// Key-value stores on either side of the wire.
    pub stores: Vec<Simulated>,
    /// Bytes of flash of the drives that are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served_capacity_bytes: Option<u64>,
    /// Stores in wall time, drive unpaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<Speed>,
    /// A served drive without commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
}

fn document(settings: &[String]) -> anyhow::Result<Document> {
    let mut document = Document::profile(PROFILE)?;
    for setting in settings {
        document.set(setting)?;
    }
    Ok(document)
}

/// W(M), adaptive transfer, backfill packing, index and flash on.
fn simulated_document(stores: u64) -> anyhow::Result<Document> {
    document(&[
        "workload.name=w-m".into(),
        format!("workload.ops={stores}"),
        "host.transfer=adaptive".into(),
        "packing.policy=backfill".into(),
    ])
}

/// Simulates `stores` stores `runs` times.
///
/// # Errors
/// A run fails, or `watch` stops it.
pub fn simulated(stores: u64, runs: u32, watch: &Watch<'_>) -> anyhow::Result<Speed> {
    let document = simulated_document(stores)?;
    let (mut seconds, mut cpu_seconds) = (Vec::new(), Vec::new());
    let mut events = 0;
    for run in 0..u64::from(runs.max(1)) {
        let all = |done, _| (watch.progress)(run * stores + done, u64::from(runs.max(1)) * stores);
        let before = thread_cpu_seconds();
        let watch = Watch { stop: watch.stop.clone(), ..Watch::progress(&all) };
        let (report, counted) = run_counted(&document, &watch)?;
        check_whole(&report)?;
        seconds.push(report.time.wall_s);
        cpu_seconds.extend(before.zip(thread_cpu_seconds()).map(|(before, after)| after - before));
        events = counted;
    }
    Ok(Speed::of(stores, seconds, cpu_seconds, Some(events as f64 / stores.max(1) as f64)))
}

/// Serves `stores` stores `runs` times, from a drive of that size.
///
/// # Errors
/// A run fails, or a store in it, or `watch` stops it.
pub fn wall(stores: u64, runs: u32, size: &DriveSize, watch: &Watch<'_>) -> anyhow::Result<Speed> {
    let document = document(&[
        size.setting(),
        "workload.name=fillseq".into(),
        format!("workload.ops={stores}"),
        format!("workload.value_size={WALL_VALUE_BYTES}"),
        "host.transfer=piggyback".into(),
        format!("host.depth={WALL_DEPTH}"),
        "run.clock=wall".into(),
    ])?;
    let mut seconds = Vec::new();
    for run in 0..u64::from(runs.max(1)) {
        let all = |done, _| (watch.progress)(run * stores + done, u64::from(runs.max(1)) * stores);
        let watch = Watch { stop: watch.stop.clone(), ..Watch::progress(&all) };
        let options = WallOptions { pace: Pace::Off, record: None, own_thread: false };
        let report = run_wall_watched(&document, &options, &watch)?.whole()?;
        check_whole(&report)?;
        seconds.push(report.time.wall_s);
    }
    Ok(Speed::of(stores, seconds, Vec::new(), None))
}

/// A figure is of whole runs whose operations succeeded.
fn check_whole(report: &Report) -> anyhow::Result<()> {
    anyhow::ensure!(!report.is_stopped, "stopped");
    let errors = report.ops.errors;
    anyhow::ensure!(errors == 0, "{errors} stores failed: {}", report.notes.join("; "));
    Ok(())
}

/// Serves a drive of that size for `span` without any command.
///
/// # Errors
/// The drive cannot be built, or is off before the end.
pub fn idle(span: Duration, size: &DriveSize) -> anyhow::Result<Idle> {
    let config = document(&[size.setting()])?.config()?;
    let server = ServerConfig { pace: Pace::Off, recorder: None };
    let (connector, serving) =
        serve_thread(server, served(config, None)).map_err(|error| anyhow::anyhow!("{error}"))?;
    let look = || serving.control().look(|_, _| thread_cpu_seconds());
    // The first looks wake the drive while it comes to rest.
    std::thread::sleep(Duration::from_millis(1));
    let (before, stopwatch) = (look()?, Stopwatch::start());
    std::thread::sleep(span);
    let (after, seconds) = (look()?, stopwatch.seconds());
    drop(connector);
    let cpu_seconds = before.zip(after).map(|(before, after)| after - before);
    Ok(Idle { seconds, cpu_seconds, wake_ups: serving.join().sleeps() })
}

/// Fills a drive with `pairs` pairs and returns the memory of this process: to be called in a process of its
/// own.
///
/// # Errors
/// The run fails, or a store in it.
pub fn memory(pairs: u64, progress: Progress<'_>) -> anyhow::Result<Memory> {
    let document = document(&[
        "workload.name=fillseq".into(),
        format!("workload.ops={pairs}"),
        format!("workload.value_size={MEMORY_VALUE_BYTES}"),
        "host.transfer=prp".into(),
        "media.kind=tags".into(),
    ])?;
    let before = ProcessMemory::now();
    let (report, _) = run_counted(&document, &Watch::progress(progress))?;
    check_whole(&report)?;
    let after = ProcessMemory::now();
    Ok(Memory {
        pairs,
        peak_bytes: known(after.resident_peak_bytes),
        before_bytes: known(before.resident_bytes),
        huge_page_bytes: after.huge_page_bytes,
        page_faults: after.page_faults,
    })
}

/// Loads, overwrites and runs YCSB A uniform on `plus` at a part of the paper's size: to be called in a
/// process of its own.
///
/// # Errors
/// The run fails, or `scale` does not fit the profile.
pub fn collecting(scale: Scale, progress: Progress<'_>) -> anyhow::Result<Collecting> {
    let mut document = Document::profile(HASH_PROFILE)?;
    document.set("workload.preset=plus")?;
    document.shrink(scale)?;
    for setting in ["engine.name=plus", "workload.name=plus-a", "workload.distribution=uniform"] {
        document.set(setting)?;
    }
    let workload = document.config()?.workload;
    let loads = workload.num + workload.overwrites;
    let stopwatch = Stopwatch::start();
    let now = || (stopwatch.seconds(), thread_cpu_seconds());
    let (began, loaded) = (now(), Cell::new(None));
    let note = |done, total| {
        if done >= loads && loaded.get().is_none() {
            loaded.set(Some(now()));
        }
        progress(done, total);
    };
    run_counted(&document, &Watch::progress(&note))?;
    let (loaded, ended) = (loaded.get().unwrap_or(began), now());
    let speed = |operations, (from_s, from_cpu_s): Times, (to_s, to_cpu_s): Times| {
        let cpu_seconds = from_cpu_s.zip(to_cpu_s).map(|(from, to)| to - from);
        Speed::of(operations, vec![to_s - from_s], cpu_seconds.into_iter().collect(), None)
    };
    Ok(Collecting {
        scale: scale.to_string(),
        loading: speed(loads, began, loaded),
        speed: speed(workload.ops, loaded, ended),
        peak_bytes: known(ProcessMemory::now().resident_peak_bytes),
        deepest_stack_bytes: kvdrive_sim::deepest_stack_bytes(),
    })
}

/// The clock, and the time that this thread was on a core, both in seconds.
type Times = (f64, Option<f64>);

/// A number of bytes that is 0 if the system does not report it.
fn known(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

/// A program that runs another one and counts its instructions.
struct Counter {
    name: &'static str,
    program: &'static str,
    /// Arguments in front of the counted command.
    arguments: &'static [&'static str],
    /// How many times slower the counter makes a run, about; the number of stores is divided by this.
    slowdown: u64,
    /// Reads the count from the counter's standard error.
    read: fn(&str) -> Option<u64>,
}

/// Counters in the order in which they are tried.
const COUNTERS: &[Counter] = &[
    Counter {
        name: "perf",
        program: "perf",
        arguments: &["stat", "-x", ",", "-e", "instructions:u", "--"],
        slowdown: 1,
        read: |text| {
            let line = text.lines().find(|line| line.contains("instructions"))?;
            line.split(',').next()?.parse().ok()
        },
    },
    Counter {
        name: "callgrind",
        program: "valgrind",
        arguments: &["--tool=callgrind", "--callgrind-out-file=/dev/null"],
        slowdown: 10,
        read: |text| text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok()),
    },
];

/// Counts the instructions of a simulated store. `simulate` returns the command that simulates a number of
/// stores in a process of its own. The instructions of such a process with 0 stores are subtracted. `stop` ends it.
///
/// # Errors
/// It was stopped.
pub fn instructions(
    stores: u64,
    simulate: &dyn Fn(u64) -> Command,
    stop: &AtomicBool,
) -> anyhow::Result<Instructions> {
    for counter in COUNTERS {
        let counted = (stores / counter.slowdown).max(2);
        let all = count(counter, simulate(counted), stop);
        let start = all.and_then(|_| count(counter, simulate(1), stop));
        anyhow::ensure!(!stop.load(Ordering::Relaxed), "stopped");
        if let (Some(all), Some(start)) = (all, start) {
            let per_store = Some(all.saturating_sub(start) as f64 / (counted - 1) as f64);
            return Ok(Instructions { per_store, counter: Some(counter.name), stores: counted });
        }
    }
    Ok(Instructions { per_store: None, counter: None, stores: 0 })
}

fn count(counter: &Counter, command: Command, stop: &AtomicBool) -> Option<u64> {
    let mut counting = Command::new(counter.program);
    counting.args(counter.arguments).arg(command.get_program()).args(command.get_args());
    counting.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = output(counting, stop).ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { (counter.read)(&text) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_and_what_they_cannot_count_is_nothing() {
        let [perf, callgrind] = COUNTERS else { panic!("there are two") };
        assert_eq!((perf.read)("123456,,instructions:u,5,100.00,,\n"), Some(123_456));
        assert_eq!((perf.read)("<not supported>,,instructions:u,0,100.00,,\n"), None);
        assert_eq!(
            (callgrind.read)("==7== Events    : Ir\n==7== Collected : 1951217164\n"),
            Some(1_951_217_164)
        );
        assert_eq!((callgrind.read)("valgrind: not here\n"), None);
    }

    #[test]
    fn every_part_runs() {
        let quiet = Watch::progress(&|_, _| {});
        let speed = simulated(500, 2, &quiet).unwrap();
        assert_eq!(speed.seconds.len(), 2);
        assert!(speed.events_each.unwrap() > 1.0 && speed.per_s > 0.0);
        let memory = memory(500, &|_, _| {}).unwrap();
        let size = DriveSize::of(Some("1GiB")).unwrap();
        assert_eq!((size.bytes, &size.note), (1 << 30, &None));
        let idle = idle(Duration::from_millis(100), &size).unwrap();
        // Three looks and the end of the drive wake it.
        assert!(idle.wake_ups <= 8, "{idle:?}");
        let speed_on_wall = wall(500, 1, &size, &quiet).unwrap();
        assert!(speed_on_wall.per_s > 0.0);
        let instructions = instructions(500, &|_| Command::new("/nonexistent"), &quiet.stop).unwrap();
        assert_eq!(instructions.per_store, None);
        let collecting = Collecting {
            scale: "1/64".into(),
            loading: speed.clone(),
            speed: speed.clone(),
            peak_bytes: memory.peak_bytes,
            deepest_stack_bytes: kvdrive_sim::deepest_stack_bytes(),
        };
        assert!((1_000..kvdrive_sim::STACK_BYTES).contains(&collecting.deepest_stack_bytes));
        let stores = stores::stores(2_000, &quiet).unwrap();
        assert!(stores.iter().all(|stores| stores.speed.per_s > 0.0), "{stores:?}");
        let mut figures = Figures::of_this_machine();
        assert_eq!(figures.to_string().lines().count(), 1, "a figure that is not measured has no line");
        figures.simulated = Some(speed);
        assert_eq!(figures.to_string().lines().count(), 4);
        figures.instructions = Some(instructions);
        figures.memory = Some(memory);
        figures.collecting = Some(collecting);
        figures.stores = stores;
        figures.wall = Some(speed_on_wall);
        figures.idle = Some(idle);
        let text = figures.to_string();
        assert_eq!(text.lines().count(), 4 + 1 + 4 + 6 + figures.stores.len() + 1 + 1, "{text}");
        assert!(text.contains("neither perf nor valgrind"), "{text}");
        if cfg!(target_os = "linux") {
            assert!(memory.peak_bytes.unwrap() >= memory.before_bytes.unwrap() && memory.page_faults > 0);
        }
    }

    #[test]
    fn a_stopped_measurement_is_no_figure() {
        let stopped = Watch::progress(&|_, _| {});
        stopped.stop.store(true, Ordering::Relaxed);
        let error = |figure: anyhow::Result<Speed>| figure.unwrap_err().to_string();
        let size = DriveSize::of(None).unwrap();
        assert_eq!([simulated(500, 1, &stopped), wall(500, 1, &size, &stopped)].map(error), ["stopped"; 2]);
        assert!(stores::stores(2_000, &stopped).unwrap().is_empty());
        let mut endless = Command::new("sleep");
        endless.arg("1000");
        assert_eq!(output(endless, &stopped.stop).unwrap_err().to_string(), "stopped");
    }
}
