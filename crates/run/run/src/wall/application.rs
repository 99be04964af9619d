//! The application of a run in wall time: it loads pairs, draws operations, keeps as many in progress as the
//! depth allows, and records how long each took. It does not know what connects it to the drive: another
//! thread of this program, or a network.
//!
//! ```text
//!   Work (shared): workload, stored values, progress ──► a lane: one thread, one pipeline ──► drive
//!                                                    └──► a lane ...
//! ```
//!
//! An operation begins as soon as the pipeline has room for it, so there is no rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_host::{Answer, Call, Calls, Client, Completion, Content, Error, FailedWrite, Pipelined};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Ns, TaskCell};
use kvdrive_spec::{Key, Status};

use crate::report;
use crate::verify::{ReadBack, Reading, Verifier, Writing};
use crate::{DELETE, EXIST, LIST, Progress, RETRIEVE, STORE, Scan, Seen, answered, note_of_end};
use kvdrive_config::Config;
use kvdrive_workload::{self as workload, Count, Op, ValueSpec, Workload};

/// Operations between two calls of a progress hook.
const PROGRESS_STEP: u64 = 8192;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The operations of a run and their state, shared by all of its lanes.
pub(super) struct Work {
    source: Mutex<Source>,
    /// Compares values that are read with what was stored, if requested.
    verifier: Option<Mutex<Verifier>>,
    pub(super) stores: u64,
    ops: u64,
    /// After this many operations a lane makes its writes durable; 0: only at its end.
    sync_every: u64,
    /// Does a scan see the writes of every lane? (A write that is pending in SAKER is visible to its own lane
    /// only.)
    sees_all: bool,
    /// No operation begins later than this after the first, ns.
    duration_ns: Ns,
    clock: Stopwatch,
    /// Pairs and operations that have begun.
    begun: AtomicU64,
    loaded_bytes: AtomicU64,
    stop: Arc<AtomicBool>,
    /// A lane has failed, so the others stop.
    is_broken: AtomicBool,
}

struct Source {
    workload: Box<dyn Workload>,
    /// Pairs that are loaded or being loaded.
    loaded: u64,
    drawn: u64,
    is_over: bool,
}

/// Data that accompany a command through the pipeline: the value, its start time, the value that the client
/// stores afterwards, and what the verifier will be told.
pub(super) struct Timed {
    pattern: Pattern,
    kind: usize,
    began_ns: Ns,
    behind: Option<ValueSpec>,
    writing: Option<Writing>,
    reading: Option<Reading>,
}

impl Content for Timed {
    fn piece(&self) -> Piece<'_> {
        Piece::Pattern(self.pattern)
    }
}

/// The phase of a lane: `Load` only stores the pairs that a workload begins with, and measures nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Load,
    Run,
}

/// One thread's access to the drive: a pipeline, a client for operations that block the thread (only while
/// the pipeline is empty), and what was seen.
pub(super) struct Lane<'a, P, C> {
    pub(super) work: &'a Work,
    pub(super) pipeline: P,
    pub(super) single: C,
    pub(super) seen: TaskCell<Seen>,
}

impl Work {
    /// The work of `config`, on a drive that may have pairs of an earlier life.
    pub(super) fn new(config: &Config, has_past: bool, stop: Arc<AtomicBool>) -> anyhow::Result<Work> {
        let params = &config.workload;
        // For `clock = wall`, checking the configuration refuses this already; for a run over a network it is
        // refused here.
        anyhow::ensure!(
            !params.has_units(),
            "workload.name: {:?} is for model time, in this program",
            params.name
        );
        let mut workload = workload::open(params, config.run.seed).map_err(anyhow::Error::msg)?;
        let mut ops = params.ops;
        let mut verifier = Verifier::new(has_past);
        if params.verify == "only" {
            let read_back = ReadBack::of(workload, ops, config.host.depth, &mut verifier);
            let read_back = read_back.map_err(anyhow::Error::msg)?;
            ops = read_back.keys();
            workload = Box::new(read_back);
        }
        Ok(Work {
            stores: workload.preload(),
            source: Mutex::new(Source { workload, loaded: 0, drawn: 0, is_over: false }),
            verifier: (params.verify != "off").then(|| Mutex::new(verifier)),
            ops,
            sync_every: params.sync_every,
            sees_all: !config.saker.enabled || config.queue_pairs() == 1,
            duration_ns: match params.duration_ns {
                0 => Ns::MAX,
                duration_ns => duration_ns,
            },
            clock: Stopwatch::start(),
            begun: AtomicU64::new(0),
            loaded_bytes: AtomicU64::new(0),
            stop,
            is_broken: AtomicBool::new(false),
        })
    }

    /// Starts the measured part.
    pub(super) fn begin(&mut self) {
        self.clock = Stopwatch::start();
    }

    /// Seconds since the start of the measured part.
    pub(super) fn seconds(&self) -> f64 {
        self.clock.seconds()
    }

    /// Bytes of the loaded values.
    pub(super) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes.load(Ordering::Relaxed)
    }

    /// Checks that all pairs are loaded.
    ///
    /// # Errors
    /// The run was stopped while loading.
    pub(super) fn check_loaded(&self) -> anyhow::Result<()> {
        let (done, stores) = (self.begun.load(Ordering::Relaxed), self.stores);
        anyhow::ensure!(done == stores, "stopped while loading, with {done} of {stores} stores done");
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_out_of_time(&self) -> bool {
        self.duration_ns < Ns::MAX && self.clock.ns() >= self.duration_ns
    }

    /// The next operation, if there is one.
    fn next(&self, phase: Phase) -> anyhow::Result<Option<Op>> {
        if self.is_stopped() || self.is_broken.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut source = lock(&self.source);
        if phase == Phase::Load {
            if source.loaded == self.stores {
                return Ok(None);
            }
            let (key, value) = source.workload.preload_pair(source.loaded);
            source.loaded += 1;
            return Ok(Some(Op::Store { key, value }));
        }
        if source.is_over || source.drawn == self.ops || self.is_out_of_time() {
            return Ok(None);
        }
        let Some((op, _)) = source.workload.draw().map_err(anyhow::Error::msg)? else {
            source.is_over = true;
            return Ok(None);
        };
        source.drawn += 1;
        Ok(Some(op))
    }

    /// Counters of the workload.
    pub(super) fn counts(&self) -> Vec<Count> {
        lock(&self.source).workload.counts()
    }

    /// Notes on the workload and on the end of the run.
    pub(super) fn notes(&self) -> Vec<String> {
        let source = lock(&self.source);
        let mut notes = source.workload.notes().to_vec();
        let is_timed = self.duration_ns < Ns::MAX;
        // A run that its time limit ended has operations left.
        let is_out_of_time = is_timed && source.drawn < self.ops && !source.is_over;
        notes.extend(note_of_end(self.is_stopped(), is_timed, is_out_of_time, source.drawn, self.ops));
        notes
    }

    /// Result of checking values, and the first wrong one.
    pub(super) fn verified(&self) -> Option<(report::Verified, Option<String>)> {
        self.verifier.as_ref().map(|verifier| lock(verifier).take())
    }

    fn timed(&self, kind: usize) -> Timed {
        let is_read = kind == RETRIEVE;
        Timed {
            pattern: Pattern { seed: 0, offset: 0, bytes: 0 },
            kind,
            began_ns: self.clock.ns(),
            behind: None,
            writing: None,
            reading: self.verifier.as_ref().filter(|_| is_read).map(|verifier| lock(verifier).begin_read()),
        }
    }

    fn store(&self, key: &Key, value: &ValueSpec) -> Timed {
        let pattern = Pattern::of_value(key, value.version, value.bytes);
        Timed { pattern, writing: self.begin_write(key, Some(*value)), ..self.timed(STORE) }
    }

    fn begin_write(&self, key: &Key, value: Option<ValueSpec>) -> Option<Writing> {
        self.verifier.as_ref().map(|verifier| lock(verifier).begin_write(*key, value))
    }

    /// Compares an answer with what was stored.
    fn check(&self, key: &Key, timed: &Timed, result: &Result<Answer, Status>, content: &Region) {
        let Some(verifier) = &self.verifier else { return };
        let mut verifier = lock(verifier);
        if let Some(writing) = timed.writing {
            verifier.end_write(key, writing, result.as_ref().map(|_| ()).map_err(|status| *status));
        }
        let Some(reading) = timed.reading else { return };
        match result {
            Ok(Answer::Value(bytes)) => verifier.check(reading, key, Some(*bytes), content),
            Err(Status::KEY_NOT_FOUND) => verifier.check(reading, key, None, &Region::new()),
            _ => verifier.unread(),
        }
        verifier.end_read(reading);
    }

    fn note_begun(&self, tell: Progress<'_>) {
        let (done, total) = (self.begun.fetch_add(1, Ordering::Relaxed) + 1, self.stores + self.ops);
        if done.is_multiple_of(PROGRESS_STEP) || done == total {
            tell(done, total);
        }
    }
}

impl<P: Pipelined<Timed>, C: Client> Lane<'_, P, C> {
    /// Runs the lane's part of a phase.
    ///
    /// # Errors
    /// The connection or the workload failed, or a store of the load phase was refused. The other lanes then
    /// end, too.
    pub(super) fn run(&mut self, phase: Phase, tell: Progress<'_>) -> anyhow::Result<()> {
        let result = self.go(phase, tell);
        if result.is_err() {
            self.work.is_broken.store(true, Ordering::Relaxed);
        }
        result
    }

    fn go(&mut self, phase: Phase, tell: Progress<'_>) -> anyhow::Result<()> {
        let mut begun = 0;
        while let Some(op) = self.work.next(phase)? {
            while !self.pipeline.has_room() {
                self.take_one(phase)?;
            }
            self.begin(&op, phase)?;
            self.work.note_begun(tell);
            begun += 1;
            if phase == Phase::Run && self.work.sync_every > 0 && begun % self.work.sync_every == 0 {
                self.settle(phase)?;
            }
        }
        self.settle(phase)
    }

    /// Collects all completions, then makes the writes durable.
    fn settle(&mut self, phase: Phase) -> anyhow::Result<()> {
        while self.pipeline.under_way() > 0 {
            self.take_one(phase)?;
        }
        let (work, seen, mut refused) = (self.work, &mut self.seen, None);
        self.pipeline.settle(&mut |what, key, status| {
            let kind = match what {
                FailedWrite::Store => STORE,
                FailedWrite::Delete => DELETE,
            };
            if let Some(verifier) = &work.verifier {
                lock(verifier).doubt(key);
            }
            seen.borrow_mut().note_error(kind, &key, &status);
            refused.get_or_insert((key, status));
        })?;
        match refused.filter(|_| phase == Phase::Load) {
            Some((key, status)) => Err(anyhow::anyhow!("loading: write of {key}: {status}")),
            None => Ok(()),
        }
    }

    fn begin(&mut self, op: &Op, phase: Phase) -> anyhow::Result<()> {
        let (work, pipeline) = (self.work, &mut self.pipeline);
        let begun = match *op {
            Op::Store { key, value } => pipeline.store(key, work.store(&key, &value)),
            Op::Retrieve { key } => pipeline.retrieve(key, work.timed(RETRIEVE), Region::new()),
            Op::Modify { key, value } => {
                let timed = Timed { behind: Some(value), ..work.timed(RETRIEVE) };
                pipeline.retrieve(key, timed, Region::new())
            }
            Op::Delete { key } => {
                let timed = Timed { writing: work.begin_write(&key, None), ..work.timed(DELETE) };
                pipeline.delete(key, timed)
            }
            Op::Exist { key } => pipeline.exist(key, work.timed(EXIST)),
            Op::Unit { .. } => unreachable!("units are for model time"),
            Op::Seek { .. } | Op::List { .. } => {
                // The operation blocks this thread. The pipeline is emptied first: meanwhile its completions
                // would not be collected and its gathered commands not sent, and the operation has to see
                // their effect.
                self.settle(phase)?;
                self.go_through(op)?;
                Ok(())
            }
        };
        begun.map_err(|_| anyhow::anyhow!("the pipeline had room and took nothing"))
    }

    /// A scan or a list, which blocks this thread.
    fn go_through(&mut self, op: &Op) -> Result<(), Error> {
        let Lane { work, single, seen, .. } = self;
        let began = work.clock.ns();
        match *op {
            Op::Seek { key, nexts } => {
                let verifier = work.verifier.as_ref().filter(|_| work.sees_all);
                let reading = verifier.map(|verifier| lock(verifier).begin_read());
                let scan = Scan { from: key, nexts, began, clock: &|| work.clock.ns(), seen };
                let scanned = scan.run(single, &mut Region::new(), &mut |pair, content| {
                    if let Some((verifier, reading)) = work.verifier.as_ref().zip(reading) {
                        lock(verifier).check(reading, &pair.key, Some(pair.value_bytes), content);
                    }
                });
                if let Some((verifier, reading)) = work.verifier.as_ref().zip(reading) {
                    lock(verifier).end_read(reading);
                }
                scanned
            }
            Op::List { key, host_buffer_bytes } => {
                let listed = answered(single.list(Some(key), host_buffer_bytes))?;
                seen.borrow_mut().note(LIST, &key, work.clock.ns() - began, listed.map(|_| ()));
                Ok(())
            }
            _ => unreachable!("the pipeline takes the others"),
        }
    }

    fn take_one(&mut self, phase: Phase) -> anyhow::Result<()> {
        let Some(completion) = self.pipeline.next_completion()? else { return Ok(()) };
        let Completion { call, value, result, content } = completion;
        let (work, key) = (self.work, call.key().expect("calls of this pipeline name keys"));
        work.check(&key, &value, &result, &content);
        if phase == Phase::Load {
            work.loaded_bytes.fetch_add(u64::from(value.pattern.bytes), Ordering::Relaxed);
            return result.map(drop).map_err(|status| anyhow::anyhow!("loading: store of {key}: {status}"));
        }
        let answered = result.as_ref().map(|_| ()).map_err(|status| *status);
        let mut seen = self.seen.borrow_mut();
        seen.note(value.kind, &key, work.clock.ns() - value.began_ns, answered);
        match (call, result) {
            (Call::Store { .. }, Ok(_)) => seen.stored_bytes += u64::from(value.pattern.bytes),
            (_, Ok(Answer::Value(bytes))) => seen.read_bytes[RETRIEVE] += u64::from(bytes),
            _ => {}
        }
        // The pipeline may carry the drive out, whose tasks give way: nothing is borrowed then.
        drop(seen);
        if let Some(behind) = &value.behind {
            let begun = self.pipeline.store(key, work.store(&key, behind));
            begun.map_err(|_| anyhow::anyhow!("a command has ended and left no room"))?;
        }
        Ok(())
    }
}
