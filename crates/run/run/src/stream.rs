//! The application of a run: how a task takes an operation, carries it out through its client and records it,
//! in model time, in wall time and over a network alike. Only the clock and the client of a task
//! ([`TaskClient`]) differ; tasks of all threads share [`Work`]. Power-on, snapshots and the sequence of runs
//! are in [`super`].
//!
//! ```text
//!   Work ─► draw ─► Stream (a thread): operation, due time ─► task: wait until due ─► client ─► record
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_device::Drive;
use kvdrive_host::{Calls, Error, Pair};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::wall::{Stopwatch, lock};
use kvdrive_sim::{Ns, Resource, Sim, TaskCell, WaitQueue};

use super::content::content;
use super::history::{Reading, Writing};
use super::intervals::Slices;
use super::kinds::{DELETE, EXIST, LIST, RETRIEVE, STORE};
use super::places::{ConnectedClient, TaskClient, TaskPlace, tell_failures};
use super::scan::{Scan, answered};
use super::seen::Seen;
use super::series::{INTERVALS_MAX, Sampler};
use super::snapshot::DriveSnapshot;
use super::tally::Tally;
use super::verify::Found;
use super::watch::Watch;
use super::work::{Drawn, Work};
use kvdrive_workload::Op;

/// Operations between two calls of a progress hook.
pub(super) const PROGRESS_STEP: u64 = 8192;

/// Longest time, ns, for which a task that waits by the machine's clock does not check whether the run is
/// over.
const LONGEST_WAIT_NS: Ns = 100_000_000;

/// The clock of an application.
#[derive(Clone)]
pub(super) enum Clock {
    /// The clock of the model.
    Model(Sim),
    /// The machine's clock, counted from its start. Tasks are woken by an executor whose time is never ahead
    /// of it.
    Wall(Arc<Stopwatch>),
}

impl Clock {
    /// The present time, ns.
    #[inline]
    pub(super) fn now(&self) -> Ns {
        match self {
            Clock::Model(sim) => sim.now(),
            Clock::Wall(stopwatch) => stopwatch.ns(),
        }
    }
}

/// The tasks of one thread: the operations that it has drawn, and the observations of its tasks.
pub(super) struct Stream {
    pub(super) work: Arc<Work>,
    /// Runs the tasks.
    pub(super) sim: Sim,
    pub(super) clock: Clock,
    /// Gets the keys of coming operations in advance, if the drive is in this program and on this thread.
    drive: Option<Rc<Drive>>,
    drawn: TaskCell<Drawn>,
    pub(super) seen: TaskCell<Seen>,
    /// Number of tasks that have not ended.
    pub(super) running: Cell<usize>,
    pub(super) is_over: Cell<bool>,
    /// The run waits here for the progress and the end of its tasks.
    news: WaitQueue,
    /// Tasks wait here for rows that another task of this thread has locked.
    pub(super) unlocked: WaitQueue,
}

impl Stream {
    pub(super) fn new(work: Arc<Work>, sim: &Sim, clock: Clock, drive: Option<Rc<Drive>>) -> Rc<Stream> {
        Rc::new(Stream {
            work,
            sim: sim.clone(),
            clock,
            drive,
            drawn: TaskCell::default(),
            seen: TaskCell::default(),
            running: Cell::new(0),
            is_over: Cell::new(false),
            news: WaitQueue::new(sim),
            unlocked: WaitQueue::new(sim),
        })
    }

    /// The next operation, or the store of the next pair while pairs are left to load. After an error, no
    /// more pairs are loaded.
    fn next(&self) -> Option<(Op, Option<Ns>)> {
        if self.work.is_over() {
            return None;
        }
        if self.seen.borrow().errors == 0
            && let Some((key, value)) = self.work.next_to_load()
        {
            return Some((Op::Store { key, value }, None));
        }
        if self.work.is_late(self.clock.now()) {
            return None;
        }
        let mut drawn = self.drawn.borrow_mut();
        if drawn.is_empty() {
            self.work.draw(&mut drawn);
            if let Some(drive) = &self.drive {
                drive.expect(&mut drawn.iter().filter_map(|(op, _)| op.key()));
            }
        }
        // An overdue operation begins at once; one that is due after the end does not begin.
        let (_, at) = drawn.front()?;
        if at.is_some_and(|at| self.work.is_due_late(at)) {
            return None;
        }
        drawn.pop_front()
    }

    /// Loads the pairs into the drive without taking time.
    pub(super) fn load_at_once(&self, tell: &dyn Fn(u64)) {
        let drive = self.drive.as_ref().expect("a drive of this thread is loaded so");
        let mut pairs = std::iter::from_fn(|| {
            let (key, value) = self.work.next_to_load()?;
            if self.work.is_over() {
                return None;
            }
            self.seen.borrow_mut().stored_bytes += u64::from(value.bytes);
            if let Some(verifier) = &self.work.verifier {
                lock(verifier).history.settle(key, Some(value));
            }
            self.note_done(tell);
            Some((key, content(&key, &value)))
        });
        if let Err((key, status)) = drive.load(&mut pairs) {
            self.seen.borrow_mut().note_error(STORE, &key, &status);
        }
    }

    /// Counts an operation, and reports progress now and then.
    fn note_done(&self, tell: &dyn Fn(u64)) {
        let done = self.work.note_done();
        if done.is_multiple_of(PROGRESS_STEP) {
            tell(done);
        }
    }

    /// Carries out all operations, with one task for each place. The caller is the task of a single place;
    /// several places get tasks of their own.
    pub(super) fn run_tasks(self: &Rc<Self>, places: &[TaskPlace], tell: &dyn Fn(u64)) {
        self.is_over.set(false);
        if let [place] = places {
            self.serve(place, tell);
            return self.is_over.set(true);
        }
        for place in places {
            let place = place.clone();
            self.spawn(move |stream| stream.serve(&place, &|_| stream.news.wake_all()));
        }
        while self.running.get() > 0 {
            self.news.wait();
            tell(self.work.done());
        }
        self.is_over.set(true);
    }

    /// Starts a task.
    pub(super) fn spawn(self: &Rc<Self>, body: impl FnOnce(&Stream) + 'static) {
        let stream = self.clone();
        self.running.set(self.running.get() + 1);
        self.sim.spawn(move || {
            body(&stream);
            stream.running.set(stream.running.get() - 1);
            stream.news.wake_all();
        });
    }

    /// Calls `end` at the end of each interval, the first of which ends at `first`, until the operations are
    /// over; `end` gets that time and returns the end of the next interval, if there is one.
    pub(super) fn at_intervals(
        self: &Rc<Self>,
        first: Ns,
        mut end: impl FnMut(&Stream, Ns) -> Option<Ns> + 'static,
    ) {
        let stream = self.clone();
        self.sim.spawn(move || {
            let mut next = Some(first);
            while let Some(at) = next {
                stream.sim.sleep_until(at);
                if stream.is_over.get() {
                    return;
                }
                next = end(&stream, at);
            }
        });
    }

    /// Reports the run in intervals from `began` on, if `watch` asks for that; `now` returns the drive's
    /// counts when an interval ends.
    pub(super) fn cut_into_slices(
        self: &Rc<Self>,
        watch: &Watch<'_>,
        began: &DriveSnapshot,
        now: impl Fn(&Sim, Ns) -> DriveSnapshot + 'static,
    ) -> Option<Rc<TaskCell<Slices>>> {
        let (length_ns, tell) = watch.intervals.clone()?;
        self.seen.borrow_mut().recent = Some(Box::default());
        let slices = Rc::new(TaskCell::new(Slices::new(length_ns, tell, began.clone())));
        let (cut, first) = (slices.clone(), slices.borrow().next_end());
        self.at_intervals(first, move |stream, at| {
            let now = now(&stream.sim, at);
            let tally = stream.tally();
            let mut cut = cut.borrow_mut();
            cut.end(now, tally);
            Some(cut.next_end())
        });
        Some(slices)
    }

    /// Counts operations in intervals of `interval_ns`, from `began` on; 0: not at all. The last interval
    /// ends with the run.
    pub(super) fn sample(self: &Rc<Self>, interval_ns: Ns, began: Ns) -> Option<Rc<TaskCell<Sampler>>> {
        let has_units = self.work.units.is_some();
        let sampler = (interval_ns > 0).then(|| Sampler::new(interval_ns, began, has_units))?;
        let sampler = Rc::new(TaskCell::new(sampler));
        let (ours, first) = (sampler.clone(), sampler.borrow().next_end());
        self.at_intervals(first, move |stream, at| {
            let mut sums = stream.seen.borrow().sums();
            lock(&stream.work.elsewhere).iter().for_each(|other| sums.add(other));
            let mut ours = ours.borrow_mut();
            if ours.is_full() {
                let problem = "the run has more than";
                stream.work.fail(anyhow::anyhow!(
                    "run.interval_ns: {interval_ns}; {problem} {INTERVALS_MAX} intervals"
                ));
                return None;
            }
            ours.end(at, &sums);
            Some(ours.next_end())
        });
        Some(sampler)
    }

    /// The work of the tasks of all threads, as far as other threads have published it.
    fn tally(&self) -> Tally {
        let mut tally = self.seen.borrow_mut().tally();
        for other in lock(&self.work.elsewhere).iter_mut() {
            tally.add(other);
            *other.recent = Default::default();
        }
        tally
    }

    /// Publishes the work of the tasks of this thread, number `thread`, to the other threads.
    pub(super) fn tell(&self, thread: usize) {
        let now = self.seen.borrow_mut().tally();
        let other = &mut lock(&self.work.elsewhere)[thread];
        let recent = std::mem::take(&mut other.recent);
        *other = now;
        other.recent.add(&recent);
    }

    fn serve(&self, place: &TaskPlace, tell: &dyn Fn(u64)) {
        let think = Some((&*place.core, place.think_ns)).filter(|(_, think_ns)| *think_ns > 0);
        match &place.client {
            ConnectedClient::Drive(driver) => self.application(&mut &**driver, think, tell),
            ConnectedClient::Saker(saker, driver) => {
                let mut handle = saker.connect(driver);
                self.application(&mut handle, think, tell);
                tell_failures(handle.close(), &mut |kind, key, status| self.refused(kind, key, status));
            }
            ConnectedClient::Store(client) => self.application(&mut &**client, think, tell),
        }
    }

    /// Carries out one operation after another until none is left, with the host's work on a core between two
    /// of them. If the connection to the drive fails, the run ends.
    pub(super) fn application(
        &self,
        client: &mut impl TaskClient,
        think: Option<(&Resource, Ns)>,
        tell: &dyn Fn(u64),
    ) {
        let (mut buffer, mut unsynced) = (Region::new(), 0);
        while let Some((op, mut at)) = self.next() {
            if let Some(at) = at {
                if !self.wait_until(at) {
                    return;
                }
                self.work.note_begun(at, self.clock.now());
            }
            for step in op.steps() {
                let began = at.take().unwrap_or_else(|| self.clock.now());
                let performed = match step {
                    Op::Unit { number } => self.perform_unit(client, number, began, &mut buffer),
                    step => self.perform(client, &step, began, &mut buffer),
                };
                if let Err(error) = performed {
                    return self.work.fail(error.into());
                }
            }
            self.note_done(tell);
            if let Some((core, span)) = think {
                core.run(span);
            }
            unsynced += 1;
            if unsynced == self.work.sync_every {
                self.sync(client);
                unsynced = 0;
            }
        }
    }

    /// Waits until an operation is due; `false`: the run is over, and the operation does not begin. A wait by
    /// the machine's clock is cut into parts, so that the end of a run is noticed soon.
    fn wait_until(&self, due: Ns) -> bool {
        let is_over = || self.is_over.get() || self.work.is_over();
        if let Clock::Wall(clock) = &self.clock {
            while clock.ns() + LONGEST_WAIT_NS < due {
                self.sim.sleep_until(due.min(clock.ns() + LONGEST_WAIT_NS));
                if is_over() {
                    return false;
                }
            }
        }
        self.sim.sleep_until(due);
        !is_over()
    }

    /// Makes the writes of a client durable.
    pub(super) fn sync(&self, client: &mut impl TaskClient) {
        if let Err(error) = client.sync(&mut |kind, key, status| self.refused(kind, key, status)) {
            self.work.fail(anyhow::anyhow!("sync: {error}"));
        }
    }

    /// Records an acknowledged write that failed.
    fn refused(&self, kind: usize, key: &Key, status: Status) {
        self.seen.borrow_mut().note_error(kind, key, &status);
        if let Some(verifier) = &self.work.verifier {
            lock(verifier).doubt(*key);
        }
    }

    /// Carries out one step that was due at `began`.
    ///
    /// # Errors
    /// The connection to the drive failed.
    fn perform(
        &self,
        client: &mut impl TaskClient,
        op: &Op,
        began: Ns,
        buffer: &mut Region,
    ) -> Result<(), Error> {
        let (seen, mut bytes) = (&self.seen, Vec::new());
        let writing = self.begin_write(op);
        let reading = self.begin_read(op);
        let (kind, result) = match *op {
            Op::Store { key, value } => {
                let is_own = self.work.units.is_some()
                    && self.work.of_workload(|workload| workload.bytes_of(&value, &mut bytes));
                let value_of = if is_own { Piece::Bytes(&bytes) } else { content(&key, &value) };
                let result = answered(client.store(key, value_of))?;
                if result.is_ok() {
                    seen.borrow_mut().stored_bytes += u64::from(value.bytes);
                }
                (STORE, result)
            }
            Op::Retrieve { key } => {
                let result = answered(client.retrieve(key, buffer))?;
                if let Ok(bytes) = result {
                    seen.borrow_mut().read_bytes[RETRIEVE] += u64::from(bytes);
                }
                self.check(reading, &key, result, buffer);
                (RETRIEVE, result.map(|_| ()))
            }
            Op::Delete { key } => (DELETE, answered(client.delete(key))?),
            Op::Exist { key } => {
                let found = answered(client.exist(key))?;
                seen.borrow_mut().missed[EXIST] += u64::from(found == Ok(false));
                (EXIST, found.map(|_| ()))
            }
            Op::List { key, host_buffer_bytes } => {
                (LIST, answered(client.list(Some(key), host_buffer_bytes))?.map(|_| ()))
            }
            Op::Seek { key, nexts } => {
                let clock = &|| self.clock.now();
                Scan { from: key, nexts, began, clock, seen }
                    .run(client, buffer, &mut |pair, content| self.check_pair(reading, pair, content))?;
                self.end_read(reading);
                return Ok(());
            }
            Op::Modify { .. } | Op::Unit { .. } => unreachable!("neither is a step"),
        };
        self.end_write(op, writing, result);
        self.end_read(reading);
        if result == Err(Status::CAPACITY_EXCEEDED) && self.work.ends_when_full() {
            return Ok(());
        }
        seen.borrow_mut().note(kind, &op.key().expect(A_STEP), self.clock.now() - began, result);
        Ok(())
    }
}

const A_STEP: &str = "a step has a key";

/// Checks of values that are read back, if requested.
impl Stream {
    fn begin_write(&self, op: &Op) -> Option<Writing> {
        let verifier = self.work.verifier.as_ref()?;
        match *op {
            Op::Store { key, value } => Some(lock(verifier).history.begin_write(key, Some(value))),
            Op::Delete { key } => Some(lock(verifier).history.begin_write(key, None)),
            _ => None,
        }
    }

    fn end_write(&self, op: &Op, writing: Option<Writing>, result: Result<(), Status>) {
        if let Some((verifier, writing)) = self.work.verifier.as_ref().zip(writing) {
            let key = op.key().expect(A_STEP);
            lock(verifier).history.end_write(&key, writing, result);
        }
    }

    fn begin_read(&self, op: &Op) -> Option<Reading> {
        let is_read = matches!(op, Op::Retrieve { .. } | Op::Seek { .. });
        self.work.verifier.as_ref().filter(|_| is_read).map(|verifier| lock(verifier).history.begin_read())
    }

    fn end_read(&self, reading: Option<Reading>) {
        if let Some((verifier, reading)) = self.work.verifier.as_ref().zip(reading) {
            lock(verifier).history.end_read(reading);
        }
    }

    /// Compares the result of a retrieve.
    fn check(&self, reading: Option<Reading>, key: &Key, found: Result<u32, Status>, buffer: &Region) {
        self.compare(reading, key, found.map(Found::whole), buffer);
    }

    fn compare(&self, reading: Option<Reading>, key: &Key, found: Result<Found, Status>, buffer: &Region) {
        let Some((verifier, reading)) = self.work.verifier.as_ref().zip(reading) else { return };
        let mut verifier = lock(verifier);
        match found {
            Ok(found) => verifier.check(reading, key, Some(found), buffer),
            Err(Status::KEY_NOT_FOUND) => verifier.check(reading, key, None, buffer),
            Err(_) => verifier.unread(),
        }
    }

    fn check_pair(&self, reading: Option<Reading>, pair: Pair, buffer: &Region) {
        if !self.work.sees_all {
            return;
        }
        let found = Found { bytes: pair.value_bytes, came_bytes: pair.came_bytes };
        self.compare(reading, &pair.key, Ok(found), buffer);
    }
}
