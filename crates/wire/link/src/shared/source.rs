//! The drive's side of a shared link: arrivals are stamped, wait for their time and enter the queues of
//! [`Link`](crate::pcie::Link); completions return in batches.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvdrive_nvme::{Cqe, Sqe};
use kvdrive_sim::wall::{Pace, Polled, Source, lock};
use kvdrive_sim::{ClockHold, Ns, Sim, TaskCell, TaskKey};

use super::control::{ControlQueue, ControlRequest};
use super::link::SharedLink;
use super::queue::SharedQueue;
use crate::arrivals::{Began, HostAction, Ports, Stamped};
use crate::queue::{Outlet, QueuePair};
use crate::recording::Recorder;
use crate::served::{Controlled, Outcome};

/// Number of completions that are handed over without waiting for the next poll. A host that waits for groups gets them
/// once half of the commands that it had under way have completed, if that is more, and so has time for them while the
/// drive is busy with the other half.
const BATCH: u32 = 8;
/// A drive that settles several completions at once settles at the latest when it has this many,
const GATHERED: u32 = 64;
/// and when one of them has waited for this many polls.
const LOOKS_HELD: u32 = 16;

/// Completions of one queue on their way to its host.
struct Outbound {
    queue: Arc<SharedQueue>,
    /// Number of its session in the drive, from the first arrival on.
    session: Cell<u32>,
    began: Began,
    batch: TaskCell<Vec<Cqe>>,
    /// Does its host wait for groups of completions?
    gathers: bool,
}

/// Invariant: a host closes rings only when all commands submitted through them were answered.
const UNTIL_CLOSED: &str = "nothing is under way of a queue whose rings are closed";

impl Outbound {
    fn new(queue: Arc<SharedQueue>) -> Rc<Outbound> {
        Rc::new(Outbound {
            gathers: queue.gathers(),
            queue,
            session: Cell::new(0),
            began: Began::default(),
            batch: TaskCell::default(),
        })
    }

    /// Is a group of `batch` completions complete?
    fn is_group(&self, batch: u32) -> bool {
        batch >= BATCH && (!self.gathers || batch >= (self.queue.under_way() / 2).min(GATHERED))
    }

    fn flush(&self) {
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.queue.complete(&batch);
            batch.clear();
        }
    }
}

/// State shared by the source and the pump task.
pub(super) struct Intake {
    ports: Ports,
    waiting: TaskCell<VecDeque<Stamped>>,
    /// Indexed by the number of the queue.
    outbound: TaskCell<Vec<Option<Rc<Outbound>>>>,
    sim: Sim,
    /// Completions that were posted since the last flush.
    held: Rc<Cell<u32>>,
    /// The queues with completions on their way.
    unflushed: Rc<TaskCell<Vec<Rc<Outbound>>>>,
    /// Polls since the first completion that was not flushed.
    looks_held: Cell<u32>,
    /// Are completions gathered for one settling?
    gathers: bool,
    recorder: Option<Rc<Recorder>>,
    /// The pump, once it has run for the first time.
    pump: Cell<Option<TaskKey>>,
    /// Completion doorbells after the last arrival, at queues that are gone.
    uncounted_doorbells: Cell<u32>,
    /// Emptied entry vectors, for the next inboxes.
    spare: TaskCell<Vec<Vec<Sqe>>>,
    /// Sends the outcome of the oldest change to its requester.
    changed: Box<dyn Fn(Outcome)>,
    /// May model time stand still while nothing needs it?
    may_hold: bool,
    clock: TaskCell<Option<ClockHold>>,
}

impl Intake {
    /// Starts the pump of `ports`; `changed` receives the outcome of each change, in order. A recorded drive has
    /// its times in the recording, so its clock is not held.
    pub(super) fn start(
        sim: &Sim,
        ports: Ports,
        pace: Pace,
        recorder: Option<Rc<Recorder>>,
        changed: impl Fn(Outcome) + 'static,
    ) -> Rc<Intake> {
        let intake = Rc::new(Intake {
            gathers: ports.drive.shares_settling(),
            ports,
            may_hold: pace == Pace::Off && recorder.is_none(),
            clock: TaskCell::default(),
            sim: sim.clone(),
            waiting: TaskCell::default(),
            outbound: TaskCell::default(),
            held: Rc::default(),
            unflushed: Rc::default(),
            looks_held: Cell::new(0),
            recorder,
            pump: Cell::new(None),
            uncounted_doorbells: Cell::new(0),
            spare: TaskCell::default(),
            changed: Box::new(changed),
        });
        intake.set_clock(intake.may_hold);
        if intake.recorder.is_some() {
            sim.keep_slices_in_place();
        }
        let (pump, clock) = (intake.clone(), sim.clone());
        sim.spawn(move || {
            pump.pump.set(Some(clock.current()));
            loop {
                pump.deliver(clock.now());
                clock.suspend();
            }
        });
        intake
    }

    /// Holds the clock if `may_hold` and nothing in the drive needs model time; else lets it run.
    fn set_clock(&self, may_hold: bool) {
        let holds = may_hold && !self.ports.drive.needs_time();
        let mut clock = self.clock.borrow_mut();
        if holds != clock.is_some() {
            *clock = holds.then(|| self.sim.hold_clock());
        }
    }

    /// Lets the clock run again for the work at the end of a run, which takes model time.
    pub(super) fn let_time_pass(&self) {
        self.set_clock(false);
    }

    /// Applies all arrivals stamped up to `now`.
    fn deliver(&self, now: Ns) {
        loop {
            let due = self.waiting.borrow().front().is_some_and(|stamped| stamped.at <= now);
            if !due {
                return;
            }
            let stamped = self.waiting.borrow_mut().pop_front().expect("it was there");
            if let Some(recorder) = &self.recorder {
                recorder.arrival(&stamped);
            }
            let applied = self.ports.apply(
                &stamped.arrived,
                |queue| self.outlet(queue),
                |outcome| (self.changed)(outcome),
            );
            applied.expect("shared queues have numbers and never submit more than their rings hold");
            if let HostAction::Change { .. } = &stamped.arrived {
                self.set_clock(self.may_hold);
            }
            if let HostAction::Commands { queue, mut sqes, .. } = stamped.arrived {
                let outbound = self.outbound.borrow();
                outbound[usize::from(queue)].as_ref().expect(UNTIL_CLOSED).began.note(&sqes, now);
                sqes.clear();
                self.spare.borrow_mut().push(sqes);
            }
        }
    }

    fn outlet(&self, queue: &QueuePair) -> Outlet {
        let is_admin = queue.is_admin();
        let outbound = self.outbound.borrow()[usize::from(queue.id())].clone().expect(UNTIL_CLOSED);
        let session = queue.session().number();
        outbound.session.set(session);
        outbound.began.forget();
        let (held, unflushed, gathers) = (self.held.clone(), self.unflushed.clone(), self.gathers);
        // The drive holds the link, which holds this: without weak references an ended drive would keep the
        // lock of its image.
        let (drive, sim) = (Rc::downgrade(&self.ports.drive), self.sim.clone());
        Box::new(move |cqe| {
            let drive = drive.upgrade().expect("completions come while the drive is served");
            if !is_admin {
                outbound.began.end(cqe.cid.get(), &*drive, sim.now());
            }
            if let Some(fault) = drive.at_door(session, cqe.cid.get()) {
                outbound.queue.sink.struck(cqe.cid.get(), fault);
            }
            outbound.batch.borrow_mut().push(cqe);
            let batch = outbound.batch.borrow().len() as u32;
            if !gathers && outbound.is_group(batch) {
                outbound.flush();
                return;
            }
            held.set(held.get() + 1);
            if batch == 1 {
                unflushed.borrow_mut().push(outbound.clone());
            }
        })
    }

    /// Hands over completions, unless waiting for more is better; `others_come` if an event is due that may
    /// add some.
    fn flush_some(&self, others_come: bool) {
        let looks = self.looks_held.get();
        let may_wait = others_come && looks < LOOKS_HELD && self.held.get() > 0;
        if may_wait && self.waits_for_more() {
            self.looks_held.set(looks + 1);
        } else {
            self.flush();
        }
    }

    /// Is it better to hold what was posted since the last flush, as long as the drive has more to do?
    fn waits_for_more(&self) -> bool {
        if self.gathers {
            return self.held.get() < GATHERED;
        }
        let in_groups = |to: &Rc<Outbound>| to.gathers && to.queue.under_way() >= BATCH;
        self.unflushed.borrow().iter().all(in_groups)
    }

    /// Hands over every completion posted so far.
    pub(super) fn flush(&self) {
        self.looks_held.set(0);
        if self.held.replace(0) == 0 {
            return;
        }
        let drive = &self.ports.drive;
        let is_settled = drive.settle();
        for outbound in self.unflushed.borrow_mut().drain(..) {
            if !is_settled {
                let session = outbound.session.get();
                outbound.batch.borrow_mut().iter_mut().for_each(|cqe| drive.revoke(session, cqe));
            }
            outbound.flush();
        }
    }

    /// Has completion doorbells counted at the end that no arrival brings any more.
    fn keep_doorbells<'a>(&self, of: impl Iterator<Item = &'a Rc<Outbound>>) {
        let rung: u32 = of.map(|to| to.queue.completion_doorbells.0.swap(0, Ordering::Relaxed)).sum();
        self.uncounted_doorbells.set(self.uncounted_doorbells.get() + rung);
    }

    /// Takes the completion doorbells after the last arrival.
    pub(super) fn count_last_doorbells(&self) -> u32 {
        self.keep_doorbells(self.outbound.borrow().iter().flatten());
        let rung = self.uncounted_doorbells.take();
        self.ports.link.count_doorbells(rung);
        rung
    }
}

/// Arrivals from other threads.
pub(super) struct WallSource<D> {
    sim: Sim,
    shared: Arc<SharedLink>,
    drive: Rc<D>,
    control_queue: Arc<ControlQueue<D>>,
    intake: Rc<Intake>,
    pace: Pace,
    /// State of the bell at the last poll.
    seen: u64,
    closed: bool,
}

impl<D> WallSource<D> {
    pub(super) fn new(
        sim: &Sim,
        shared: Arc<SharedLink>,
        drive: Rc<D>,
        control_queue: Arc<ControlQueue<D>>,
        intake: Rc<Intake>,
        pace: Pace,
    ) -> WallSource<D> {
        WallSource { sim: sim.clone(), shared, drive, control_queue, intake, pace, seen: 0, closed: false }
    }

    /// Runs all looks, and stamps changes and host actions with `at`; `true` if there is something for the
    /// pump.
    fn take_all(&self, at: Ns) -> bool {
        let mut changes = Vec::new();
        for request in self.control_queue.take() {
            match request {
                ControlRequest::Look(look) => look(&self.sim, &self.drive),
                ControlRequest::Change(change) => changes.push(change),
            }
        }
        let intake = &*self.intake;
        let mut waiting = intake.waiting.borrow_mut();
        let before = waiting.len();
        waiting
            .extend(changes.into_iter().map(|change| Stamped { at, arrived: HostAction::Change { change } }));
        let mut outbound = intake.outbound.borrow_mut();
        let mut registry = lock(&self.shared.registry);
        for number in std::mem::take(&mut registry.news) {
            let queue = registry.queues[usize::from(number)].clone();
            if let Some(queue) = queue.as_ref().filter(|queue| !queue.is_by_command) {
                waiting.push_back(Stamped { at, arrived: HostAction::Queue { entries: queue.entries } });
            }
            if outbound.len() <= usize::from(number) {
                outbound.resize(usize::from(number) + 1, None);
            }
            let place = &mut outbound[usize::from(number)];
            let before = std::mem::replace(place, queue.map(Outbound::new));
            intake.keep_doorbells(before.iter());
        }
        // While the registry is locked, no queue begins that has no place here yet.
        for number in self.shared.filled.take(outbound.len()) {
            let Some(outbound) = &outbound[usize::from(number)] else { continue };
            take(&outbound.queue, number, &intake.spare, |arrived| {
                waiting.push_back(Stamped { at, arrived });
            });
        }
        drop(registry);
        waiting.len() > before
    }
}

/// Takes the content of a queue's inbox.
pub(super) fn take(
    queue: &SharedQueue,
    number: u16,
    spare: &TaskCell<Vec<Vec<Sqe>>>,
    mut arrive: impl FnMut(HostAction),
) {
    let mut sqes = spare.borrow_mut().pop().unwrap_or_default();
    let mut inbox = lock(&queue.inbox.0);
    std::mem::swap(&mut inbox.sqes, &mut sqes);
    let submission_doorbells = std::mem::take(&mut inbox.doorbells);
    let reset = std::mem::take(&mut inbox.reset);
    drop(inbox);
    if reset {
        arrive(HostAction::Reset { queue: number });
    }
    if sqes.is_empty() {
        // There was only a reset, or the entries were taken at the last poll, between the sender's unlocking
        // and its setting of the flag.
        spare.borrow_mut().push(sqes);
        return;
    }
    let completion_doorbells = queue.completion_doorbells.0.swap(0, Ordering::Relaxed);
    arrive(HostAction::Commands { queue: number, sqes, submission_doorbells, completion_doorbells });
}

impl<D: Controlled> Source for WallSource<D> {
    fn poll(&mut self, at: Ns) -> Polled {
        // Unpaced, every event is due now.
        let due = self.sim.next_due();
        self.intake.flush_some(due.is_some_and(|due| self.pace != Pace::Model || due <= at));
        let news = self.shared.bell.news();
        if news == self.seen {
            return if self.closed { Polled::Closed } else { Polled::Nothing };
        }
        let Some(pump) = self.intake.pump.get() else { return Polled::Nothing };
        self.seen = news;
        if self.shared.cut.load(Ordering::Acquire) {
            self.sim.halt();
            return Polled::Closed;
        }
        self.closed = self.shared.closed.load(Ordering::Acquire);
        // Arrivals of the same model time share one wake-up.
        let awaited = self.intake.waiting.borrow().back().is_some_and(|stamped| stamped.at == at);
        if self.take_all(at) && !awaited { Polled::Woke(pump) } else { Polled::Nothing }
    }

    fn arm(&mut self) -> Duration {
        // The closing of the link is reported at the next poll.
        if self.closed || self.shared.bell.sleeps(self.seen) { Duration::ZERO } else { Duration::MAX }
    }

    fn disarm(&mut self) {
        self.shared.bell.is_awake();
    }

    fn ran_late(&mut self, late_ns: Ns) {
        self.drive.note_lateness(late_ns);
    }
}
