//! The operations of a run and all that its tasks share, on whichever threads they are: the workload, the
//! times at which operations begin, pairs to load, rows that are locked, the verifier, and why the run ends.
//!
//! In model time there is one thread, and every lock is free.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use anyhow::Context;
use kvdrive_engines::KNOWN_AHEAD;
use kvdrive_nvme::Key;
use kvdrive_sim::Ns;
use kvdrive_sim::wall::lock;

use super::arrivals::Arrivals;
use super::memory::Spending;
use super::report;
use super::seen::Seen;
use super::tally::Tally;
use super::verify::Verifier;
use super::watch::Stopped;
use kvdrive_config::WHOLE_TRACE;
use kvdrive_text::{grouped, number_of};
use kvdrive_workload::units::Units;
use kvdrive_workload::{Op, ValueSpec, Workload, WorkloadParams};

/// The shared state of a run: its workload and everything around it.
pub(crate) struct Work {
    source: Mutex<Source>,
    /// Checks values, if requested.
    pub(super) verifier: Option<Arc<Mutex<Verifier>>>,
    /// The units of the workload, how many have begun, and the rows that some of them have locked.
    pub(super) units: Option<Arc<dyn Units>>,
    pub(super) units_begun: AtomicU64,
    pub(super) rows: Mutex<BTreeSet<Key>>,
    /// Are the writes of a unit one atomic batch?
    pub(super) atomic: bool,
    /// Operations of a task between two syncs; 0: none.
    pub(super) sync_every: u64,
    /// Does a scan return the pairs that every task has stored?
    pub(super) sees_all: bool,
    /// Pairs whose loading has begun, and where loading ends.
    loaded: AtomicU64,
    load_end: AtomicU64,
    /// Operations answered, loading included.
    done: AtomicU64,
    /// The time at which the run ends, and whether an operation was drawn that is due after it.
    until: AtomicU64,
    has_late: AtomicBool,
    /// How much later than due the latest operation began, ns.
    late_ns: AtomicU64,
    /// Does the first store that does not fit end the run, and has one not fitted?
    until_full: bool,
    full: AtomicBool,
    /// The work of tasks that threads other than the first have published.
    pub(super) elsewhere: Mutex<Vec<Tally>>,
    stop: Arc<AtomicBool>,
    memory: Spending,
    /// Why the run cannot continue.
    has_failed: AtomicBool,
    failure: Mutex<Option<anyhow::Error>>,
    /// Why the workload has no more operations, if it did not end well: a damaged file.
    bad_end: Mutex<Option<String>>,
}

/// The source of operations.
struct Source {
    workload: Box<dyn Workload>,
    /// Operations left to draw, and how many to draw at a time.
    left: u64,
    ahead: u64,
    /// Due times, and when the measured operations began.
    arrivals: Option<Arrivals>,
    start: Ns,
    /// Operations begin at the times recorded in a trace.
    at_recorded_times: bool,
}

/// Drawn operations, each with its due time if operations do not wait for each other.
pub(super) type Drawn = VecDeque<(Op, Option<Ns>)>;

impl Work {
    /// The work of a run with these parameters, which ends when `memory` runs short. `sees_all`: see the field of that
    /// name.
    pub(super) fn new(
        workload: Box<dyn Workload>,
        params: &WorkloadParams,
        verifier: Arc<Mutex<Verifier>>,
        sees_all: bool,
        memory: Spending,
        stop: Arc<AtomicBool>,
    ) -> Work {
        let units = workload.units();
        let (arrivals, at_recorded_times) = (None, false);
        Work {
            source: Mutex::new(Source { workload, left: 0, ahead: 1, arrivals, start: 0, at_recorded_times }),
            verifier: (params.verify != "off").then_some(verifier),
            units,
            units_begun: AtomicU64::new(0),
            rows: Mutex::default(),
            atomic: params.atomic,
            sync_every: params.sync_every,
            sees_all,
            loaded: AtomicU64::new(0),
            load_end: AtomicU64::new(0),
            done: AtomicU64::new(0),
            until: AtomicU64::new(Ns::MAX),
            has_late: AtomicBool::new(false),
            late_ns: AtomicU64::new(0),
            until_full: params.until_full,
            full: AtomicBool::new(false),
            elsewhere: Mutex::default(),
            stop,
            memory,
            has_failed: AtomicBool::new(false),
            failure: Mutex::default(),
            bad_end: Mutex::default(),
        }
    }

    /// Calls `ask` with the workload.
    pub(super) fn of_workload<T>(&self, ask: impl FnOnce(&dyn Workload) -> T) -> T {
        ask(&*lock(&self.source).workload)
    }

    /// Starts the measured part: `ops` operations, from `now` on. `threads` draw them.
    pub(super) fn begin(&self, params: &WorkloadParams, seed: u64, ops: u64, now: Ns, threads: u32) {
        let mut source = lock(&self.source);
        (source.left, source.start) = (ops, now);
        source.at_recorded_times = params.arrivals == "trace";
        source.arrivals = Arrivals::of(params, seed);
        if params.duration_ns > 0 {
            self.until.store(now.saturating_add(params.duration_ns), Relaxed);
        }
        // If the run may end early, only operations that begin are drawn; and if there are several threads,
        // none draws due times that another one could have served.
        let has_times = source.at_recorded_times || source.arrivals.is_some();
        let is_single = self.until_full || params.duration_ns > 0 || (threads > 1 && has_times);
        source.ahead = if is_single { 1 } else { KNOWN_AHEAD as u64 };
    }

    /// Is no operation left to begin, measured or not?
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Relaxed) || self.has_failed.load(Relaxed)
    }

    /// Does no measured operation begin at `now`?
    pub(super) fn is_late(&self, now: Ns) -> bool {
        self.full.load(Relaxed) || now >= self.until.load(Relaxed)
    }

    /// Is an operation due at `at` too late to begin, because the run ends before? It stays undone.
    pub(super) fn is_due_late(&self, at: Ns) -> bool {
        let is_late = at >= self.until.load(Relaxed);
        self.has_late.fetch_or(is_late, Relaxed);
        is_late
    }

    /// Notes that an operation that was due at `at` begins at `now`.
    pub(super) fn note_begun(&self, at: Ns, now: Ns) {
        self.late_ns.store(now.saturating_sub(at), Relaxed);
    }

    /// After a run of `span_ns`: did the drive not keep up with the times at which operations were due? The
    /// latency of an operation then depends on the length of the run, not on the drive.
    pub(super) fn is_behind(&self, span_ns: Ns) -> bool {
        self.late_ns.load(Relaxed) > span_ns / 10
    }

    /// Appends the next operations to `drawn`.
    pub(super) fn draw(&self, drawn: &mut Drawn) {
        let Source { workload, left, ahead, arrivals, start, at_recorded_times } = &mut *lock(&self.source);
        let count = (*left).min(*ahead);
        *left -= count;
        let (mut values, mut bytes) = (0, 0);
        for _ in 0..count {
            match workload.draw() {
                Ok(Some((op, recorded))) => {
                    let (more, of_them) = match &op {
                        Op::Store { value, .. } | Op::Modify { value, .. } => (1, value.bytes),
                        // Some rows, whose sizes are known later.
                        Op::Unit { .. } => (8, 0),
                        _ => (0, 0),
                    };
                    (values, bytes) = (values + more, bytes + u64::from(of_them));
                    let at = match arrivals {
                        Some(arrivals) => Some(arrivals.next()),
                        None => recorded.filter(|_| *at_recorded_times),
                    };
                    drawn.push_back((op, at.map(|at| start.saturating_add(at))));
                }
                Ok(None) => {
                    *left = 0;
                    break;
                }
                Err(problem) => {
                    *left = 0;
                    lock(&self.bad_end).get_or_insert(problem);
                    break;
                }
            }
        }
        self.spend(values, bytes);
    }

    /// Notes that values are going to be stored.
    fn spend(&self, values: u64, bytes: u64) {
        if let Some(short) = self.memory.note(values, bytes) {
            self.fail(short);
        }
    }

    /// Begins to load `pairs` pairs, before anything is measured.
    pub(super) fn begin_loading(&self, pairs: u64) {
        self.load_end.store(pairs, Relaxed);
    }

    /// Number of the pairs to load, and bytes of their values as far as they are known in advance.
    pub(super) fn load_size(&self) -> (u64, u64) {
        self.of_workload(|workload| (workload.preload(), workload.preload_bytes()))
    }

    /// Are pairs left to load?
    pub(super) fn is_loading(&self) -> bool {
        self.loaded.load(Relaxed) < self.load_end.load(Relaxed)
    }

    /// The next pair to load.
    pub(super) fn next_to_load(&self) -> Option<(Key, ValueSpec)> {
        if !self.is_loading() {
            return None;
        }
        let index = self.loaded.fetch_add(1, Relaxed);
        let is_left = index < self.load_end.load(Relaxed);
        let (key, value) = is_left.then(|| lock(&self.source).workload.preload_pair(index))?;
        self.spend(1, value.bytes.into());
        Some((key, value))
    }

    /// Counts an operation; returns how many have been answered.
    pub(super) fn note_done(&self) -> u64 {
        self.done.fetch_add(1, Relaxed) + 1
    }

    /// Operations answered, loading included.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Notes that a store did not fit; returns whether that ends the run.
    pub(super) fn ends_when_full(&self) -> bool {
        let ends = self.until_full && !self.is_loading();
        self.full.fetch_or(ends, Relaxed);
        ends
    }

    /// Notes that the run cannot continue; the first reason is kept.
    pub(super) fn fail(&self, problem: anyhow::Error) {
        self.has_failed.store(true, Relaxed);
        lock(&self.failure).get_or_insert(problem);
    }

    /// Why the run could not continue.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn check_failure(&self) -> anyhow::Result<()> {
        lock(&self.failure).take().map_or(Ok(()), Err)
    }

    /// How the operations of a run ended, of which `done` were answered: `Some` if the file of the workload is damaged
    /// behind them.
    ///
    /// # Errors
    /// The run could not continue, or no operation was done: a report of nothing would look like one of a fast drive.
    pub(super) fn end(&self, done: u64) -> anyhow::Result<Option<anyhow::Error>> {
        self.check_failure()?;
        let bad_end = lock(&self.bad_end).take();
        if done > 0 || self.stop.load(Relaxed) {
            return Ok(bad_end.map(anyhow::Error::msg));
        }
        match bad_end {
            Some(problem) => Err(anyhow::Error::msg(problem)),
            None if self.has_late.load(Relaxed) => {
                anyhow::bail!("no operation was done: the first one is due after workload.duration_ns")
            }
            None if lock(&self.source).left > 0 => {
                anyhow::bail!("no operation was done: none began within workload.duration_ns")
            }
            None => anyhow::bail!("no operation was done: the workload has none"),
        }
    }

    /// Checks that all `stores` pairs of the workload `name` were loaded.
    ///
    /// # Errors
    /// A store was refused, the connection to the drive failed, or the run was stopped meanwhile.
    pub(super) fn check_loaded(&self, name: &str, stores: u64, seen: &Seen) -> anyhow::Result<()> {
        let done = self.done();
        let so_far = format!("{} of {} stores done", grouped(done), grouped(stores));
        self.check_failure().with_context(|| format!("loading, {so_far}"))?;
        if let Some(error) = &seen.first_error {
            anyhow::bail!("workload.name = {name:?}: loading, {so_far}: {error}");
        }
        anyhow::ensure!(done == stores, Stopped(format!("stopped while loading, with {so_far}")));
        Ok(())
    }

    /// The results of checking values, with the first wrong one.
    pub(super) fn verified(&self) -> Option<(report::Verified, Option<String>)> {
        self.verifier.as_ref().map(|verifier| lock(verifier).take())
    }

    /// Notes on how operations began and why they ended; `done` of `ops` were done in `span_ns`, until `now`.
    pub(super) fn notes_at_end(
        &self,
        params: &WorkloadParams,
        ops: u64,
        done: u64,
        span_ns: Ns,
        now: Ns,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        if self.verifier.is_some() && !self.sees_all {
            notes.push(
                "values of scans are not checked: scans lack the pending writes of other threads".into(),
            );
        }
        if params.rate_per_s > 0 {
            let how = if params.arrivals == "poisson" { "at random" } else { "equally spaced" };
            notes.push(format!(
                "operations began at {}/s, {how}; latency counts from when one was to begin",
                grouped(params.rate_per_s)
            ));
        }
        if self.is_behind(span_ns) {
            let per_s = grouped((done as f64 * 1e9 / span_ns as f64) as u64);
            notes.push(format!(
                "the drive did not keep up, with {per_s}/s: operations waited, the longer the later they were"
            ));
        }
        let is_timed = params.duration_ns > 0 && !self.full.load(Relaxed);
        let has_more = self.has_late.load(Relaxed) || lock(&self.source).left > 0;
        let is_out_of_time = now >= self.until.load(Relaxed) || has_more;
        if let Some(problem) = &*lock(&self.bad_end) {
            notes.push(format!(
                "the workload could not be read further: {problem}; this is the report so far"
            ));
        }
        notes.extend(note_of_end(self.stop.load(Relaxed), is_timed, is_out_of_time, done, ops));
        notes
    }
}

/// A note for a run that ended before its last operation, or that ended with its last operation before its
/// time was over.
fn note_of_end(
    is_stopped: bool,
    is_timed: bool,
    is_out_of_time: bool,
    done: u64,
    ops: u64,
) -> Option<String> {
    // The length of a whole trace is unknown before its end.
    let of_all = match ops {
        WHOLE_TRACE => number_of(done, "operation"),
        ops => format!("{} of {} operations", grouped(done), grouped(ops)),
    };
    match (is_stopped, is_timed, is_out_of_time) {
        (true, ..) => Some(format!("stopped from outside with {of_all} done: this is the report so far")),
        (false, true, true) => Some(format!("ended at workload.duration_ns with {of_all} done")),
        (false, true, false) => {
            Some("ended before workload.duration_ns: workload.ops has no more".to_owned())
        }
        (false, false, _) => None,
    }
}
