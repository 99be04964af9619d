//! What the tasks of a run share: the operations still to do, what came of those done, and how each task
//! takes one, does it and notes it. Power-on, snapshots and what runs follow each other are in [`super`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvdrive_content::{Piece, Region};
use kvdrive_device::Drive;
use kvdrive_engines::KNOWN_AHEAD;
use kvdrive_host::modelled::Pair;
use kvdrive_host::{Client, Error};
use kvdrive_sim::{Ns, Resource, Sim, TaskCell, WaitQueue};
use kvdrive_spec::{Key, Status};

use super::arrivals::Arrivals;
use super::scan::{Scan, answered};
use super::seats::{Party, Seat, Whom, tell_failures};
use super::seen::{DELETE, EXIST, LIST, RETRIEVE, STORE, Seen};
use super::units::{ClientPairs, RowLocks};
use super::verify::{Reading, Verifier, Writing};
use super::{PROGRESS_STEP, content};
use crate::config::Config;
use crate::text::grouped;
use crate::workload::units::{Ended, Failed, Units};
use crate::workload::{Op, ValueSpec, Workload, WorkloadParams};

/// What all tasks of a run share: the operations still to do, and what came of those done.
pub(super) struct Stream {
    pub(super) sim: Sim,
    pub(super) think_ns: Ns,
    pub(super) drive: Rc<Drive>,
    pub(super) workload: TaskCell<Box<dyn Workload>>,
    /// Operations that were drawn, each with the moment it is to begin if it does not wait for others.
    pub(super) drawn: TaskCell<VecDeque<(Op, Option<Ns>)>>,
    /// When operations are to begin, and when the measured ones began; none begins at `until` or later.
    pub(super) arrivals: TaskCell<Option<Arrivals>>,
    pub(super) start: Cell<Ns>,
    pub(super) until: Cell<Ns>,
    /// Operations begin when a trace says.
    pub(super) at_recorded_times: Cell<bool>,
    pub(super) is_over: Cell<bool>,
    pub(super) stop: Arc<AtomicBool>,
    /// What the workload could not go on for.
    pub(super) failure: TaskCell<Option<String>>,
    /// Where values are checked.
    pub(super) verifier: Option<Rc<TaskCell<Verifier>>>,
    /// Operations of a task between two syncs; 0: none.
    pub(super) sync_every: u64,
    /// Does a scan see what every task has stored?
    pub(super) sees_all: bool,
    /// Pairs that are loaded already, and where loading ends.
    pub(super) loaded: Cell<u64>,
    pub(super) load_end: Cell<u64>,
    pub(super) left: Cell<u64>,
    /// Does the first store that does not fit end the run, and has there been one?
    pub(super) until_full: bool,
    pub(super) full: Cell<bool>,
    pub(super) done: Cell<u64>,
    pub(super) seen: TaskCell<Seen>,
    /// Who does the workload's units, how many were begun, and who has which rows.
    pub(super) units: Option<Arc<dyn Units>>,
    pub(super) units_begun: Cell<u64>,
    pub(super) rows: RowLocks,
    /// Tasks that have not ended, and where the run waits for them and for word of their progress.
    pub(super) running: Cell<usize>,
    pub(super) news: WaitQueue,
}

impl Stream {
    /// The next operation: a store of the next pair while there is one to be loaded. Nothing more is loaded
    /// behind an error.
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
        // Who is late does not wait; who is too late does not begin.
        let (_, at) = drawn.front()?;
        if at.is_some_and(|at| at >= self.until.get()) {
            return None;
        }
        drawn.pop_front()
    }

    /// Draws the next operations and tells the drive of them. One at a time where the run may end before them:
    /// they have not been drawn then.
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
                    self.left.set(0);
                    self.failure.borrow_mut().get_or_insert(problem);
                    break;
                }
            }
        }
        self.drive.expect(&mut drawn.iter().filter_map(|(op, _)| op.key()));
    }

    /// From now on operations are measured.
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

    /// What there is to say of how operations began and why they ended, `done` of `ops` being done in `span_ns`.
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

    /// One more is done; `true` when that is worth a word.
    fn note_done(&self) -> bool {
        let done = self.done.get() + 1;
        self.done.set(done);
        done.is_multiple_of(PROGRESS_STEP)
    }

    /// Puts the pairs to be loaded into the drive, in no time.
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

    /// Does all operations, with a task for each seat: one in the place of its caller, several as tasks of their
    /// own.
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

    /// Does operations, one behind the other, until none is left.
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

    /// Has a client make durable what it wrote.
    fn sync(&self, client: &mut impl Party) {
        if let Err(status) = client.sync(&mut |kind, key, status| self.refused(kind, key, status)) {
            self.failure.borrow_mut().get_or_insert(format!("sync: {status}"));
        }
    }

    /// A write that was answered has failed.
    fn refused(&self, kind: usize, key: &Key, status: Status) {
        self.seen.borrow_mut().note_error(kind, key, &status);
        if let Some(verifier) = &self.verifier {
            verifier.borrow_mut().doubt(*key);
        }
    }

    /// Does one step, which was to begin at `began`.
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
    /// Does a unit, which was to begin at `began`. What was refused is noted, and the run goes on; what is wrong
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

    /// Reads back what the run's units left, behind everything that is measured: what was found, in a line.
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

/// What a modelled drive, or a store over one, answered.
fn in_model<T>(result: Result<T, Error>) -> Result<T, Status> {
    answered(result).expect(ALWAYS_A_WAY)
}

/// What there is to say where a run of so many operations did not end behind the last of them, or where it did
/// although its time was not over.
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

/// Values that are read back, held against what was stored, where that is asked for.
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

/// That a drive has not kept up with a rate, if it has not: how long an operation waited says then how long the run
/// was, and nothing of the drive.
fn note_of_rate(rate_per_s: u64, done: u64, span_ns: Ns) -> Option<String> {
    let (asked, done) = (rate_per_s as f64 * span_ns as f64 / 1e9, done as f64);
    // Arrivals at random are not exactly as many, by their root.
    (done < 0.9 * asked && asked - done > 5.0 * asked.sqrt()).then(|| {
        let kept = grouped((done * 1e9 / span_ns as f64) as u64);
        format!("the drive did not keep up, with {kept}/s: operations waited, the longer the later they were")
    })
}
