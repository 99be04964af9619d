//! The drive's side of a shared link: what arrives is stamped, waits for its time and goes into the queues of
//! [`Link`]; completions go back in batches.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvdrive_sim::wall::{Pace, Polled, Source};
use kvdrive_sim::{Ns, Sim, TaskCell, TaskKey};
use kvdrive_spec::{Command, Cqe, Sqe};

use super::control::{Controlled, Desk, Outcome, Request};
use super::{SharedLink, SharedQueue, lock};
use crate::pcie::Link;
use crate::queue::{Outlet, QueuePair};
use crate::recording::Recorder;

/// Completions that are handed over without waiting for the next look.
const BATCH: usize = 8;
/// Of a drive that settles for several completions at once: so many do not wait for others.
const GATHERED: u32 = 64;
/// Nor does one that has waited for so many looks at the outside.
const LOOKS_HELD: u32 = 16;

/// The namespace of pairs, whose values a host gives up.
const NSID: u32 = 1;

/// Something a host did, as far as the drive can see it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The next queue pair was created, without a command.
    Queue { entries: u32 },
    /// It rang a queue's doorbell behind these entries.
    Commands { queue: u16, sqes: Vec<Sqe>, submission_doorbells: u32, completion_doorbells: u32 },
    /// It gave up the value that it had begun on a queue.
    Reset { queue: u16 },
    /// Whoever controls the drive changed it.
    Change { change: String },
}

/// An arrival and the model time it takes effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamped {
    pub(crate) at: Ns,
    pub(crate) arrived: Arrived,
}

/// The link's queues by number, fed with arrivals. A wall run and its replay both do it here.
pub(crate) struct Ports {
    pub(crate) link: Rc<Link>,
    pub(crate) drive: Rc<dyn Controlled>,
    /// As far as something has arrived at them.
    queues: TaskCell<Vec<Option<Rc<QueuePair>>>>,
    /// Those that were created without a command, the admin queue among them.
    created: Cell<usize>,
}

impl Ports {
    pub(crate) fn new(link: Rc<Link>, drive: Rc<dyn Controlled>) -> Ports {
        Ports { link, drive, queues: TaskCell::default(), created: Cell::new(0) }
    }

    /// Queue `number`, whose completions `outlet` takes.
    fn queue(
        &self,
        number: u16,
        outlet: impl FnOnce(&QueuePair) -> Outlet,
    ) -> Result<Rc<QueuePair>, &'static str> {
        let known = self.queues.borrow().get(usize::from(number)).cloned().flatten();
        if let Some(queue) = known.filter(|queue| !queue.is_deleted()) {
            return Ok(queue);
        }
        let queue = self.link.first_function().queue(number).filter(|queue| !queue.is_deleted());
        let queue = queue.ok_or("something arrives at a queue that was never created")?;
        self.take(&queue, outlet);
        Ok(queue)
    }

    /// From now on completions of `queue` go to `outlet`.
    fn take(&self, queue: &Rc<QueuePair>, outlet: impl FnOnce(&QueuePair) -> Outlet) {
        queue.set_outlet(outlet(queue));
        let (mut queues, number) = (self.queues.borrow_mut(), usize::from(queue.id()));
        if queues.len() <= number {
            queues.resize(number + 1, None);
        }
        queues[number] = Some(queue.clone());
    }

    /// Lets an arrival take effect. `outlet` makes the outlet of a queue at which something arrives for the
    /// first time, `changed` hears what came of a change.
    ///
    /// Errors: why it makes no sense.
    pub(crate) fn apply(
        &self,
        arrived: &Arrived,
        outlet: impl FnOnce(&QueuePair) -> Outlet,
        changed: impl FnOnce(Outcome),
    ) -> Result<(), &'static str> {
        match arrived {
            Arrived::Queue { entries } => {
                let number = self.created.replace(self.created.get() + 1);
                let id = u16::try_from(number);
                let id = id.map_err(|_| "one queue more than there are queue identifiers")?;
                let is_there = number > 0 && self.link.first_function().queue(id).is_some();
                let queue = match number {
                    0 => self.link.admin_queue(),
                    _ if is_there => return Err("a queue is created that a command has created before"),
                    _ => self.link.create_queue(*entries),
                };
                self.take(&queue, outlet);
                Ok(())
            }
            Arrived::Commands { queue, sqes, submission_doorbells, completion_doorbells } => {
                let queue = &self.queue(*queue, outlet)?;
                self.link.count_doorbells(*submission_doorbells);
                self.link.count_doorbells(*completion_doorbells);
                let fits = sqes.iter().all(|sqe| queue.try_submit(*sqe));
                self.link.note_arrival(queue);
                if fits { Ok(()) } else { Err("commands for a queue that is full") }
            }
            Arrived::Reset { queue } => {
                let queue = &self.queue(*queue, outlet)?;
                let mut discard = Command::Discard.encode(0, NSID);
                discard.set_quiet();
                self.link.count_doorbells(1);
                let fits = queue.try_submit(discard);
                self.link.note_arrival(queue);
                if fits { Ok(()) } else { Err("a queue is full that gives up a value") }
            }
            Arrived::Change { change } => {
                changed(self.drive.change(change));
                Ok(())
            }
        }
    }
}

/// When the commands of one queue took effect, and their opcodes, by identifier.
#[derive(Default)]
pub(crate) struct Began(TaskCell<Vec<(Ns, u8)>>);

impl Began {
    /// These take effect now.
    pub(crate) fn note(&self, sqes: &[Sqe], now: Ns) {
        let mut began = self.0.borrow_mut();
        for sqe in sqes {
            let cid = usize::from(sqe.cid.get());
            if began.len() <= cid {
                began.resize(cid + 1, (0, 0));
            }
            began[cid] = (now, sqe.opcode);
        }
    }

    /// One completes now: tells `drive` how long it took.
    pub(crate) fn end(&self, cid: u16, drive: &dyn Controlled, now: Ns) {
        if let Some((began, opcode)) = self.0.borrow().get(usize::from(cid)) {
            drive.note_latency(*opcode, now - began);
        }
    }
}

/// Completions of one queue on their way to its host.
struct Outbound {
    queue: Arc<SharedQueue>,
    /// Number of its session in the drive, from the first arrival on.
    session: Cell<u32>,
    began: Began,
    batch: TaskCell<Vec<Cqe>>,
}

/// Who closes rings has been answered all that went through them.
const UNTIL_CLOSED: &str = "nothing is under way of a queue whose rings are closed";

impl Outbound {
    fn new(queue: Arc<SharedQueue>) -> Rc<Outbound> {
        Rc::new(Outbound {
            queue,
            session: Cell::new(0),
            began: Began::default(),
            batch: TaskCell::default(),
        })
    }

    fn flush(&self) {
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.queue.complete(&batch);
            batch.clear();
        }
    }
}

/// What the source and the pump task share.
pub(super) struct Intake {
    ports: Ports,
    waiting: TaskCell<VecDeque<Stamped>>,
    /// By number of the queue.
    outbound: TaskCell<Vec<Option<Rc<Outbound>>>>,
    sim: Sim,
    /// Completions that were posted since the last flush.
    held: Rc<Cell<u32>>,
    /// Looks since the first of them.
    looks_held: Cell<u32>,
    /// Do they wait for each other?
    gathers: bool,
    recorder: Option<Rc<Recorder>>,
    /// The pump, once it has run for the first time.
    pump: Cell<Option<TaskKey>>,
    /// Completion doorbells behind the last arrival at queues that are gone.
    uncounted_doorbells: Cell<u32>,
    /// Emptied entry vectors, for the next inboxes.
    spare: TaskCell<Vec<Vec<Sqe>>>,
    /// Tells who asked for the oldest change what came of it.
    changed: Box<dyn Fn(Outcome)>,
}

impl Intake {
    /// Starts the pump of `ports`; `changed` hears what came of each change, in their order.
    pub(super) fn start(
        sim: &Sim,
        ports: Ports,
        recorder: Option<Rc<Recorder>>,
        changed: impl Fn(Outcome) + 'static,
    ) -> Rc<Intake> {
        let intake = Rc::new(Intake {
            gathers: ports.drive.shares_settling(),
            ports,
            sim: sim.clone(),
            waiting: TaskCell::default(),
            outbound: TaskCell::default(),
            held: Rc::default(),
            looks_held: Cell::new(0),
            recorder,
            pump: Cell::new(None),
            uncounted_doorbells: Cell::new(0),
            spare: TaskCell::default(),
            changed: Box::new(changed),
        });
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

    /// Lets everything stamped up to `now` take effect.
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
            if let Arrived::Commands { queue, sqes, .. } = &stamped.arrived {
                let outbound = self.outbound.borrow();
                outbound[usize::from(*queue)].as_ref().expect(UNTIL_CLOSED).began.note(sqes, now);
            }
            let applied = self.ports.apply(
                &stamped.arrived,
                |queue| self.outlet(queue),
                |outcome| (self.changed)(outcome),
            );
            applied.expect("shared queues have numbers and never submit more than their rings hold");
            if let Arrived::Commands { mut sqes, .. } = stamped.arrived {
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
        let (held, gathers) = (self.held.clone(), self.gathers);
        // The drive has the link, which has this: one that has ended goes, with the lock of its image.
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
            if !gathers && outbound.batch.borrow().len() >= BATCH {
                outbound.flush();
            } else {
                held.set(held.get() + 1);
            }
        })
    }

    /// Hands over completions, unless it pays to wait for others; `others_come` if something is due that may
    /// bring some.
    fn flush_some(&self, others_come: bool) {
        let looks = self.looks_held.get();
        if self.gathers && others_come && self.held.get() < GATHERED && looks < LOOKS_HELD {
            self.looks_held.set(if self.held.get() > 0 { looks + 1 } else { 0 });
        } else {
            self.flush();
        }
    }

    /// Hands over every completion posted so far.
    pub(super) fn flush(&self) {
        self.looks_held.set(0);
        if self.held.replace(0) == 0 {
            return;
        }
        let drive = &self.ports.drive;
        let is_settled = drive.settle();
        for outbound in self.outbound.borrow().iter().flatten() {
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

    /// Takes the completion doorbells that came behind the last arrival.
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
    desk: Arc<Desk<D>>,
    intake: Rc<Intake>,
    pace: Pace,
    /// State of the bell at the last look.
    seen: u64,
    closed: bool,
}

impl<D> WallSource<D> {
    pub(super) fn new(
        sim: &Sim,
        shared: Arc<SharedLink>,
        drive: Rc<D>,
        desk: Arc<Desk<D>>,
        intake: Rc<Intake>,
        pace: Pace,
    ) -> WallSource<D> {
        WallSource { sim: sim.clone(), shared, drive, desk, intake, pace, seen: 0, closed: false }
    }

    /// Lets everybody look who asked to, and stamps changes and what hosts did with `at`; `true` if there is
    /// something for the pump.
    fn take_all(&self, at: Ns) -> bool {
        let mut changes = Vec::new();
        for request in self.desk.take() {
            match request {
                Request::Look(look) => look(&self.sim, &self.drive),
                Request::Change(change) => changes.push(change),
            }
        }
        let intake = &*self.intake;
        let mut waiting = intake.waiting.borrow_mut();
        let before = waiting.len();
        waiting.extend(changes.into_iter().map(|change| Stamped { at, arrived: Arrived::Change { change } }));
        let mut outbound = intake.outbound.borrow_mut();
        let mut registry = lock(&self.shared.registry);
        for number in std::mem::take(&mut registry.news) {
            let queue = registry.queues[usize::from(number)].clone();
            if let Some(queue) = queue.as_ref().filter(|queue| !queue.is_by_command) {
                waiting.push_back(Stamped { at, arrived: Arrived::Queue { entries: queue.entries } });
            }
            if outbound.len() <= usize::from(number) {
                outbound.resize(usize::from(number) + 1, None);
            }
            let place = &mut outbound[usize::from(number)];
            let before = std::mem::replace(place, queue.map(Outbound::new));
            intake.keep_doorbells(before.iter());
        }
        drop(registry);
        for (number, outbound) in outbound.iter().enumerate() {
            let Some(outbound) = outbound else { continue };
            take(&outbound.queue, number as u16, &intake.spare, |arrived| {
                waiting.push_back(Stamped { at, arrived });
            });
        }
        waiting.len() > before
    }
}

/// Takes what is in a queue's inbox.
fn take(queue: &SharedQueue, number: u16, spare: &TaskCell<Vec<Vec<Sqe>>>, mut arrive: impl FnMut(Arrived)) {
    if !queue.filled.swap(false, Ordering::Acquire) {
        return;
    }
    let mut sqes = spare.borrow_mut().pop().unwrap_or_default();
    let mut inbox = lock(&queue.inbox.0);
    std::mem::swap(&mut inbox.sqes, &mut sqes);
    let submission_doorbells = std::mem::take(&mut inbox.doorbells);
    let reset = std::mem::take(&mut inbox.reset);
    drop(inbox);
    if reset {
        arrive(Arrived::Reset { queue: number });
    }
    if sqes.is_empty() {
        // There was a reset alone, or they were taken at the last look, between the sender's unlocking and
        // its raising of the flag.
        spare.borrow_mut().push(sqes);
        return;
    }
    let completion_doorbells = queue.completion_doorbells.0.swap(0, Ordering::Relaxed);
    arrive(Arrived::Commands { queue: number, sqes, submission_doorbells, completion_doorbells });
}

impl<D: Controlled> Source for WallSource<D> {
    fn poll(&mut self, at: Ns) -> Polled {
        // Unpaced, whatever is due at all is due now.
        let due = self.sim.next_due();
        self.intake.flush_some(due.is_some_and(|due| self.pace == Pace::Off || due <= at));
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
        // One wake-up serves all arrivals of one time.
        let awaited = self.intake.waiting.borrow().back().is_some_and(|stamped| stamped.at == at);
        if self.take_all(at) && !awaited { Polled::Woke(pump) } else { Polled::Nothing }
    }

    fn arm(&mut self) -> Duration {
        // That the link is closed is told at the next look.
        if self.closed || self.shared.bell.sleeps(self.seen) { Duration::ZERO } else { Duration::MAX }
    }

    fn disarm(&mut self) {
        self.shared.bell.is_awake();
    }

    fn ran_late(&mut self, late_ns: Ns) {
        self.drive.note_lateness(late_ns);
    }
}
