//! State that the tasks of a run share: the operations still to do, the results, and how a task takes an
//! operation, does it and records it. Power-on, snapshots and the sequence of runs are in [`super`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_content::{Piece, Region};
use kvdrive_device::Drive;
use kvdrive_engines::KNOWN_AHEAD;
use kvdrive_host::modelled::Pair;
use kvdrive_host::{Calls, Client, Error};
use kvdrive_sim::{Ns, Resource, Sim, TaskCell, WaitQueue};
use kvdrive_spec::{Key, Status};

use super::arrivals::Arrivals;
use super::scan::{Scan, answered};
use super::seats::{Party, Seat, Whom, tell_failures};
use super::seen::{DELETE, EXIST, LIST, RETRIEVE, STORE, Seen};
use super::units::{ClientPairs, RowLocks};
use super::verify::{Reading, Verifier, Writing};
use super::{PROGRESS_STEP, content};
use kvdrive_config::Config;
use kvdrive_text::grouped;
use kvdrive_workload::units::{Ended, Failed, Units};
use kvdrive_workload::{Op, ValueSpec, Workload, WorkloadParams};

/// State that all tasks of a run share: the operations still to do, and the results.
pub(super) struct Stream {
    pub(super) sim: Sim,
    pub(super) think_ns: Ns,
    pub(super) drive: Rc<Drive>,
    pub(super) workload: TaskCell<Box<dyn Workload>>,
    /// Drawn operations, each with its due time if operations do not wait for each other.
    pub(super) drawn: TaskCell<VecDeque<(Op, Option<Ns>)>>,
    /// Due times, and when the measured operations began; none begins at `until` or later.
    pub(super) arrivals: TaskCell<Option<Arrivals>>,
    pub(super) start: Cell<Ns>,
    pub(super) until: Cell<Ns>,
    /// Operations begin at the times recorded in a trace.
    pub(super) at_recorded_times: Cell<bool>,
    pub(super) is_over: Cell<bool>,
    pub(super) stop: Arc<AtomicBool>,
    /// The error because of which the workload cannot continue.
    pub(super) failure: TaskCell<Option<String>>,
    /// Checks values, if requested.
    pub(super) verifier: Option<Rc<TaskCell<Verifier>>>,
    /// Operations of a task between two syncs; 0: none.
    pub(super) sync_every: u64,
    /// Does a scan see what every task has stored?
    pub(super) sees_all: bool,
    /// Pairs loaded so far, and where loading ends.
    pub(super) loaded: Cell<u64>,
    pub(super) load_end: Cell<u64>,
    pub(super) left: Cell<u64>,
    /// Does the first store that does not fit end the run, and has that happened?
    pub(super) until_full: bool,
    pub(super) full: Cell<bool>,
    pub(super) done: Cell<u64>,
    pub(super) seen: TaskCell<Seen>,
    /// The units of the workload, how many have begun, and the locks of rows.
    pub(super) units: Option<Arc<dyn Units>>,
    pub(super) units_begun: Cell<u64>,
    pub(super) rows: RowLocks,
    /// Tasks that have not ended; the run waits here for their end and for their progress.
    pub(super) running: Cell<usize>,
    pub(super) news: WaitQueue,
}

impl Stream {
    /// The next operation: a store of the next pair while pairs are left to load. After an error, no more is
    /// loaded.
    fn next(&self) -> Option<(Op, Option<Ns>)> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        if self.seen.borrow().errors == 0
            && let Some((key, value)) = self.next_to_load()
        {
            return Some((Op::Store { key, value }, None));
        }
        if self.full.get() || self.sim.now() >= self.until.get() {
            return None;
        }
        let mut drawn = self.drawn.borrow_mut();
        if drawn.is_empty() {
            self.draw(&mut drawn);
        }
        // An overdue operation begins at once; one that is due after the end does not begin.
        let (_, at) = drawn.front()?;
        if at.is_some_and(|at| at >= self.until.get()) {
            return None;
        }
        drawn.pop_front()
    }

    /// Draws the next operations and announces them to the drive. If the run may end early, it draws one at a
    /// time, so that no operation is drawn that does not begin.
    fn draw(&self, drawn: &mut VecDeque<(Op, Option<Ns>)>) {
        let may_end = self.until_full || self.until.get() < Ns::MAX;
        let count = self.left.get().min(if may_end { 1 } else { KNOWN_AHEAD as u64 });
        self.left.set(self.left.get() - count);
        let (mut workload, mut arrivals) = (self.workload.borrow_mut(), self.arrivals.borrow_mut());
        for _ in 0..count {
            match workload.draw() {
                Ok(Some((op, recorded))) => {
                    let at = match &mut *arrivals {
                        Some(arrivals) => Some(arrivals.next()),
                        None => recorded.filter(|_| self.at_recorded_times.get()),
                    };
                    let at = at.map(|at| self.start.get().saturating_add(at));
                    drawn.push_back((op, at));
                }
                Ok(None) => {
                    self.left.set(0);
                    break;
                }
                Err(problem) => {
                    self.give_up(problem);
                    break;
                }
            }
        }
        self.drive.expect(&mut drawn.iter().filter_map(|(op, _)| op.key()));
    }

    /// No further operation begins, and the run fails.
    pub(super) fn give_up(&self, problem: String) {
        self.left.set(0);
        self.failure.borrow_mut().get_or_insert(problem);
    }

    /// Starts the measured part: from now on operations are counted.
    pub(super) fn begin(&self, config: &Config, ops: u64, now: Ns) {
        let params = &config.workload;
        self.left.set(ops);
        self.start.set(now);
        self.at_recorded_times.set(params.arrivals == "trace");
        *self.arrivals.borrow_mut() = Arrivals::of(params, config.run.seed);
        if params.duration_ns > 0 {
            self.until.set(now.saturating_add(params.duration_ns));
        }
    }

    /// Notes on how operations began and why they ended; `done` of `ops` were done in `span_ns`.
    pub(super) fn notes_at_end(
        &self,
        params: &WorkloadParams,
        ops: u64,
        done: u64,
        span_ns: Ns,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        if self.verifier.is_some() && !self.sees_all {
            notes.push("values of scans are not checked: they lack what other threads have pending".into());
        }
        if params.rate_per_s > 0 {
            let how = if params.arrivals == "poisson" { "at random" } else { "equally spaced" };
            notes.push(format!(
                "operations began at {}/s, {how}; latency counts from when one was to begin",
                grouped(params.rate_per_s)
            ));
            notes.extend(note_of_rate(params.rate_per_s, done, span_ns));
        }
        let (is_stopped, is_timed) = (self.stop.load(Ordering::Relaxed), params.duration_ns > 0);
        let is_out_of_time = self.sim.now() >= self.until.get() || self.left.get() > 0;
        notes.extend(note_of_end(is_stopped, is_timed && !self.full.get(), is_out_of_time, done, ops));
        notes
    }

    fn next_to_load(&self) -> Option<(Key, ValueSpec)> {
        let index = self.loaded.get();
        if index == self.load_end.get() {
            return None;
        }
        self.loaded.set(index + 1);
        Some(self.workload.borrow().preload_pair(index))
    }

    /// Counts an operation; `true` if progress is to be reported now.
    fn note_done(&self) -> bool {
        let done = self.done.get() + 1;
        self.done.set(done);
        done.is_multiple_of(PROGRESS_STEP)
    }

    /// Loads the pairs into the drive in no time.
    pub(super) fn load_at_once(&self, tell: &dyn Fn(u64)) {
        let mut pairs = std::iter::from_fn(|| {
            let (key, value) = self.next_to_load()?;
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            self.seen.borrow_mut().stored_bytes += u64::from(value.bytes);
            if let Some(verifier) = &self.verifier {
                verifier.borrow_mut().settle(key, Some(value));
            }
            if self.note_done() {
                tell(self.done.get());
            }
            Some((key, content(&key, &value)))
        });
        if let Err((key, status)) = self.drive.load(&mut pairs) {
            self.seen.borrow_mut().note_error(STORE, &key, &status);
        }
    }

    /// Does all operations, with one task for each seat. A single seat runs in the caller's task, several run
    /// in tasks of their own.
    pub(super) fn run_tasks(self: &Rc<Self>, seats: &[Seat], tell: &dyn Fn(u64)) {
        self.is_over.set(false);
        if let [seat] = seats {
            self.serve(seat, tell);
            return self.is_over.set(true);
        }
        for seat in seats {
            let (stream, seat) = (self.clone(), seat.clone());
            self.running.set(self.running.get() + 1);
            self.sim.spawn(move || {
                stream.serve(&seat, &|_| stream.news.wake_all());
                stream.running.set(stream.running.get() - 1);
                stream.news.wake_all();
            });
        }
        while self.running.get() > 0 {
            self.news.wait();
            tell(self.done.get());
        }
        self.is_over.set(true);
    }

    fn serve(&self, seat: &Seat, tell: &dyn Fn(u64)) {
        match &seat.whom {
            Whom::Drive(driver) => self.application(&mut &**driver, &seat.core, tell),
            Whom::Saker(saker, driver) => {
                let mut handle = saker.connect(driver);
                self.application(&mut handle, &seat.core, tell);
                tell_failures(handle.close(), &mut |kind, key, status| self.refused(kind, key, status));
            }
            Whom::Store(client) => self.application(&mut &**client, &seat.core, tell),
        }
    }

    /// Does one operation after the other until none is left.
    fn application(&self, client: &mut impl Party, core: &Resource, tell: &dyn Fn(u64)) {
        let (mut buffer, mut unsynced) = (Region::new(), 0);
        while let Some((op, mut at)) = self.next() {
            if let Some(at) = at {
                self.sim.sleep_until(at);
            }
            for step in op.steps() {
                let began = at.take().unwrap_or_else(|| self.sim.now());
                match step {
                    Op::Unit { number } => self.perform_unit(client, number, began, &mut buffer),
                    step => self.perform(client, &step, began, &mut buffer),
                }
            }
            if self.note_done() {
                tell(self.done.get());
            }
            if self.think_ns > 0 {
                core.run(self.think_ns);
            }
            unsynced += 1;
            if unsynced == self.sync_every {
                self.sync(client);
                unsynced = 0;
            }
        }
    }

    /// Makes the writes of a client durable.
    fn sync(&self, client: &mut impl Party) {
        if let Err(status) = client.sync(&mut |kind, key, status| self.refused(kind, key, status)) {
            self.failure.borrow_mut().get_or_insert(format!("sync: {status}"));
        }
    }

    /// Records an acknowledged write that failed.
    fn refused(&self, kind: usize, key: &Key, status: Status) {
        self.seen.borrow_mut().note_error(kind, key, &status);
        if let Some(verifier) = &self.verifier {
            verifier.borrow_mut().doubt(*key);
        }
    }

    /// Does one step that was due at `began`.
    fn perform(&self, client: &mut impl Client, op: &Op, began: Ns, buffer: &mut Region) {
        let (seen, mut bytes) = (&self.seen, Vec::new());
        let writing = self.begin_write(op);
        let reading = self.begin_read(op);
        let (kind, result) = match *op {
            Op::Store { key, value } => {
                let is_own = self.units.is_some() && self.workload.borrow().bytes_of(&value, &mut bytes);
                let value_of = if is_own { Piece::Bytes(&bytes) } else { content(&key, &value) };
                let result = in_model(client.store(key, value_of));
                if result.is_ok() {
                    seen.borrow_mut().stored_bytes += u64::from(value.bytes);
                }
                (STORE, result)
            }
            Op::Retrieve { key } => {
                let result = in_model(client.retrieve(key, buffer));
                if let Ok(bytes) = result {
                    seen.borrow_mut().read_bytes[RETRIEVE] += u64::from(bytes);
                }
                self.check(reading, &key, result, buffer);
                (RETRIEVE, result.map(|_| ()))
            }
            Op::Delete { key } => (DELETE, in_model(client.delete(key))),
            Op::Exist { key } => (EXIST, in_model(client.exist(key)).map(|_| ())),
            Op::List { key, host_buffer_bytes } => {
                (LIST, in_model(client.list(Some(key), host_buffer_bytes)).map(|_| ()))
            }
            Op::Seek { key, nexts } => {
                let clock = &|| self.sim.now();
                let scanned = Scan { from: key, nexts, began, clock, seen }.run(
                    client,
                    buffer,
                    &mut |pair, content| self.check_pair(reading, pair, content),
                );
                scanned.expect(ALWAYS_A_WAY);
                return self.end_read(reading);
            }
            Op::Modify { .. } | Op::Unit { .. } => unreachable!("neither is a step"),
        };
        self.end_write(op, writing, result);
        self.end_read(reading);
        if self.until_full
            && result == Err(Status::CAPACITY_EXCEEDED)
            && self.load_end.get() <= self.loaded.get()
        {
            self.full.set(true);
            return;
        }
        seen.borrow_mut().note(kind, &op.key().expect(A_STEP), self.sim.now() - began, result);
    }
}

/// Units of a workload.
impl Stream {
    /// Does a unit that was due at `began`. A refusal is recorded, and the run continues; any other error
    /// ends it.
    fn perform_unit(&self, client: &mut impl Party, number: u64, began: Ns, buffer: &mut Region) {
        let units = self.units.as_ref().expect("whoever draws units does them");
        self.units_begun.set(self.units_begun.get() + 1);
        let clock = &|| self.sim.now();
        let mut pairs = ClientPairs::new(client, buffer, &self.seen, clock).with_locks(&self.rows);
        match units.run(number, &mut pairs) {
            Ok(Ended { kind, is_committed }) => {
                let kind = units.kinds()[kind];
                self.seen.borrow_mut().note_unit(kind, is_committed, self.sim.now() - began);
            }
            Err(Failed::Refused(_)) => {}
            Err(Failed::Wrong(what)) => {
                self.failure.borrow_mut().get_or_insert(format!("unit {number}: {what}"));
                self.left.set(0);
                self.drawn.borrow_mut().clear();
            }
        }
    }

    /// Reads back what the units left, after everything that is measured; returns the findings as one line.
    pub(super) fn check_units(&self, seat: &Seat, errors: u64) -> anyhow::Result<Option<String>> {
        let Some(units) = &self.units else { return Ok(None) };
        if errors > 0 {
            return Ok(Some("what its units left was not checked, for some of them failed".into()));
        }
        let (clock, mut buffer) = (&|| self.sim.now(), Region::new());
        let begun = self.units_begun.get();
        let checked = match &seat.whom {
            Whom::Drive(driver) => {
                units.check(begun, &mut ClientPairs::new(&mut &**driver, &mut buffer, &self.seen, clock))
            }
            Whom::Saker(saker, driver) => {
                let mut handle = saker.connect(driver);
                units.check(begun, &mut ClientPairs::new(&mut handle, &mut buffer, &self.seen, clock))
            }
            Whom::Store(client) => {
                units.check(begun, &mut ClientPairs::new(&mut &**client, &mut buffer, &self.seen, clock))
            }
        };
        Ok(Some(checked.map_err(|failed| anyhow::anyhow!("what the units of the run left: {failed}"))?))
    }
}

const A_STEP: &str = "a step has a key";
const ALWAYS_A_WAY: &str = "there is always a way to a modelled drive";

/// The answer of a modelled drive, or of a store over one.
fn in_model<T>(result: Result<T, Error>) -> Result<T, Status> {
    answered(result).expect(ALWAYS_A_WAY)
}

/// A note for a run that ended before its last operation, or that ended with its last operation before its
/// time was over.
pub(crate) fn note_of_end(
    is_stopped: bool,
    is_timed: bool,
    is_out_of_time: bool,
    done: u64,
    ops: u64,
) -> Option<String> {
    let of_all = format!("{} of {} operations", grouped(done), grouped(ops));
    match (is_stopped, is_timed, is_out_of_time) {
        (true, ..) => Some(format!("stopped from outside with {of_all} done: this is the report so far")),
        (false, true, true) => Some(format!("ended at workload.duration_ns with {of_all} done")),
        (false, true, false) => {
            Some("ended before workload.duration_ns: workload.ops has no more".to_owned())
        }
        (false, false, _) => None,
    }
}

/// Checks of values that are read back, if requested.
impl Stream {
    fn begin_write(&self, op: &Op) -> Option<Writing> {
        let verifier = self.verifier.as_ref()?;
        match *op {
            Op::Store { key, value } => Some(verifier.borrow_mut().begin_write(key, Some(value))),
            Op::Delete { key } => Some(verifier.borrow_mut().begin_write(key, None)),
            _ => None,
        }
    }

    fn end_write(&self, op: &Op, writing: Option<Writing>, result: Result<(), Status>) {
        if let Some((verifier, writing)) = self.verifier.as_ref().zip(writing) {
            let key = op.key().expect(A_STEP);
            verifier.borrow_mut().end_write(&key, writing, result);
        }
    }

    fn begin_read(&self, op: &Op) -> Option<Reading> {
        let is_read = matches!(op, Op::Retrieve { .. } | Op::Seek { .. });
        self.verifier.as_ref().filter(|_| is_read).map(|verifier| verifier.borrow_mut().begin_read())
    }

    fn end_read(&self, reading: Option<Reading>) {
        if let Some((verifier, reading)) = self.verifier.as_ref().zip(reading) {
            verifier.borrow_mut().end_read(reading);
        }
    }

    fn check(&self, reading: Option<Reading>, key: &Key, found: Result<u32, Status>, buffer: &Region) {
        let Some((verifier, reading)) = self.verifier.as_ref().zip(reading) else { return };
        let mut verifier = verifier.borrow_mut();
        match found {
            Ok(bytes) => verifier.check(reading, key, Some(bytes), buffer),
            Err(Status::KEY_NOT_FOUND) => verifier.check(reading, key, None, buffer),
            Err(_) => verifier.unread(),
        }
    }

    fn check_pair(&self, reading: Option<Reading>, pair: Pair, buffer: &Region) {
        if !self.sees_all {
            return;
        }
        self.check(reading, &pair.key, Ok(pair.value_bytes), buffer);
    }
}

/// A note if the drive did not keep up with a rate: the latency of an operation then depends on the length of
/// the run, not on the drive.
fn note_of_rate(rate_per_s: u64, done: u64, span_ns: Ns) -> Option<String> {
    let (asked, done) = (rate_per_s as f64 * span_ns as f64 / 1e9, done as f64);
    // The number of random arrivals has a standard deviation of about its square root.
    (done < 0.9 * asked && asked - done > 5.0 * asked.sqrt()).then(|| {
        let kept = grouped((done * 1e9 / span_ns as f64) as u64);
        format!("the drive did not keep up, with {kept}/s: operations waited, the longer the later they were")
    })
}
