//! The executor: the clock, and the loop that joins tasks and events (`tasks`, `agenda`).
//!
//! A task is a closure on a stack of its own ([`crate::coroutine`]). What it calls are plain functions; the
//! few of them that wait (here, in [`crate::WaitQueue`] and what stands on it) note what they wait for and
//! give way, and return when that is there.
//!
//! Invariants:
//! * `now` never goes back, and only this file moves it.
//! * Events of the same time run in the order in which they were scheduled, except that *external* arrivals
//!   (see [`crate::wall`]) of a time come before everything else of that time. A permuted executor
//!   ([`Sim::permuted`]) draws the order within one time from a seed instead: a test mode that finds code
//!   which relies on an order nobody promised.
//! * A wake-up may be spurious: whoever waits looks at his own condition when he is resumed.
//! * Nobody gives way while a [`crate::TaskCell`] is borrowed.
//!
//! A task that sleeps while nothing else is due earlier does not give way at all: time moves on under it.
//! That is still counted as an event. While [`join_all`] begins its branches, only the last of them may do
//! that: behind each of the others comes one that must still see the present time.
//!
//! A task that is handed what it waits for and would only sleep then ([`crate::Resource::run`]) is put away for
//! that time without being resumed. It takes its place in the order of events when its turn has come, as if it
//! had run. A place taken earlier would change who comes first among events of one time, and so reports.
//!
//! What is not here: who is waited for and why ([`crate::Resource`], locks), and where the machine's clock comes
//! in ([`crate::wall`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::agenda::Event;
use crate::cell::assert_nothing_borrowed;
use crate::coroutine::{self, Coroutine};
use crate::join::JoinHandle;
use crate::tasks::{Due, NOBODY, ROOT, Ready, Schedule, TaskKey};
use crate::{Ns, Rng, Trace};

/// Set in the order of every internal event, so that external ones of the same time sort before it.
const INTERNAL: u64 = 1 << 63;

struct Core {
    now: Cell<Ns>,
    sequence: Cell<u64>,
    events: Cell<u64>,
    current: Cell<TaskKey>,
    /// Who goes on in place when the present task has ended; see [`join_all`].
    next: Cell<Option<TaskKey>>,
    /// Earliest time in `agenda`; `Ns::MAX` when it is empty.
    next_due: Cell<Ns>,
    /// Reasons for which no task may travel in time in place: each that is beginning a branch which is not its last
    /// one, a test mode, a power cut.
    closed: Cell<u32>,
    /// A task may travel in place to any time before this: up to the next event, nowhere while somebody is
    /// ready who would not only sleep.
    horizon: Cell<Ns>,
    /// There may be some in `ready` who would only sleep.
    has_sleepers: Cell<bool>,
    /// How many hold the clock; see [`Sim::hold_clock`].
    clock_holders: Cell<u32>,
    halted: Cell<bool>,
    schedule: RefCell<Schedule>,
    permute: Option<RefCell<Rng>>,
    trace: Trace,
}

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ran {
    /// Nothing: there is no event, or the power is cut.
    Nothing,
    /// A task, or a key that names none any more.
    Task,
    /// It is the turn of whoever called [`Sim::block_on`].
    Root,
}

/// Handle to one executor and its clock; clones are the same executor.
#[derive(Clone)]
pub struct Sim(Rc<Core>);

impl Default for Sim {
    fn default() -> Self {
        Sim::new()
    }
}

impl Sim {
    /// An executor at time 0 with the usual order of events.
    pub fn new() -> Sim {
        Sim::build(None)
    }

    /// An executor that shuffles events of the same time by `seed` (test mode).
    pub fn permuted(seed: u64) -> Sim {
        Sim::build(Some(RefCell::new(Rng::stream(seed, "same-time order"))))
    }

    fn build(permute: Option<RefCell<Rng>>) -> Sim {
        Sim(Rc::new(Core {
            now: Cell::new(0),
            sequence: Cell::new(0),
            events: Cell::new(0),
            current: Cell::new(NOBODY),
            next: Cell::new(None),
            next_due: Cell::new(Ns::MAX),
            closed: Cell::new(u32::from(permute.is_some())),
            horizon: Cell::new(0),
            has_sleepers: Cell::new(false),
            clock_holders: Cell::new(0),
            halted: Cell::new(false),
            schedule: RefCell::default(),
            permute,
            trace: Trace::default(),
        }))
    }

    /// Present model time in ns.
    #[inline]
    pub fn now(&self) -> Ns {
        self.0.now.get()
    }

    /// Events that have run so far: tasks resumed, and sleeps that continued in place.
    pub fn events(&self) -> u64 {
        self.0.events.get()
    }

    /// Where `explain` collects what happened; off unless switched on.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Makes every event a step of its own: no sleep continues in place. Power-cut tests need to stop
    /// between any two.
    pub fn step_every_event(&self) {
        self.close(1);
        self.0.horizon.set(0);
    }

    /// Starts a task; it first runs when the loop gets to it, at the present time.
    pub fn spawn<T: 'static>(&self, body: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        JoinHandle::spawn(self, body)
    }

    /// A task that begins at the present time, when the loop gets to it.
    pub(crate) fn schedule(&self, coroutine: Coroutine) -> TaskKey {
        let mut schedule = self.0.schedule.borrow_mut();
        let task = schedule.tasks.open(false);
        schedule.tasks.put(task, Box::new(coroutine));
        drop(schedule);
        self.wake(task);
        task
    }

    /// Waits `span` ns of model time.
    #[inline]
    pub fn sleep(&self, span: Ns) {
        self.sleep_until(self.now().saturating_add(span));
    }

    /// Waits until model time `at`; a time in the past does not wait.
    #[inline]
    pub fn sleep_until(&self, at: Ns) {
        if self.must_wait_for(at) {
            self.push(Event { at, order: self.next_order(), task: self.current() });
            self.suspend_until(at);
        }
    }

    /// Waits until `at` as an arrival from outside: it runs before everything else of that time.
    pub fn sleep_until_external(&self, at: Ns) {
        if self.must_wait_for(at) {
            self.wake_external(self.current(), at);
            self.suspend_until(at);
        }
    }

    /// Must a task give way to wait for `at`? Otherwise it has come.
    #[inline]
    fn must_wait_for(&self, at: Ns) -> bool {
        if self.now() >= at && !self.halted() {
            return false;
        }
        !self.travel_to(at)
    }

    fn suspend_until(&self, at: Ns) {
        loop {
            self.suspend();
            if self.now() >= at {
                return;
            }
        }
    }

    /// Gives way until somebody wakes the present task. It may be woken for nothing.
    #[inline]
    pub fn suspend(&self) {
        assert_nothing_borrowed();
        if self.current() == ROOT { self.run_until_root() } else { coroutine::suspend() }
    }

    /// Lets no time pass as long as the guard is held: whoever sleeps goes on at once. Everything else
    /// happens as usual, to the same end as if every resource worked infinitely fast. For what has to be
    /// done before a study begins.
    ///
    /// Sleeps that began before are not cut short; if nothing else is left to be done, time moves on to them.
    pub fn hold_clock(&self) -> ClockHold {
        self.0.clock_holders.set(self.0.clock_holders.get() + 1);
        ClockHold { sim: self.clone() }
    }

    /// Lets other tasks that are ready now run first, if there are any.
    pub fn let_others_run(&self) {
        if self.next_due() == Some(self.now()) {
            self.yield_now();
        }
    }

    /// Lets other tasks that are due now run first.
    pub fn yield_now(&self) {
        self.wake(self.current());
        self.suspend();
    }

    /// The task that runs.
    #[inline]
    pub fn current(&self) -> TaskKey {
        self.0.current.get()
    }

    /// Has the power been cut? Guards dropped afterwards do nothing.
    #[inline]
    pub fn halted(&self) -> bool {
        self.0.halted.get()
    }

    /// Power cut: no task runs again and no guard acts when it is dropped. Tasks are dropped when the loop
    /// ends.
    pub fn halt(&self) {
        self.0.halted.set(true);
        self.close(1);
        self.0.horizon.set(0);
    }

    /// Schedules `task` at the present time.
    #[inline]
    pub fn wake(&self, task: TaskKey) {
        self.wake_to_sleep(task, 0);
    }

    /// Schedules `task`, which will do nothing at the present time but sleep for `span` ns more: it may be resumed
    /// behind that only. All is as if it had done so itself: the same events in the same order, and one switch
    /// of stacks less.
    #[inline]
    pub(crate) fn wake_to_sleep(&self, task: TaskKey, span: Ns) {
        let core = &*self.0;
        if self.halted() {
            return;
        }
        let order = self.next_order();
        if core.permute.is_some() {
            return self.push(Event { at: self.now(), order, task });
        }
        let until = if span > 0 { self.now().saturating_add(span) } else { 0 };
        core.horizon.set(core.horizon.get().min(until));
        core.has_sleepers.set(core.has_sleepers.get() || span > 0);
        core.schedule.borrow_mut().ready.push_back(Ready { order, task, sleeps: span });
    }

    /// Puts all who are ready away: they will only sleep, for longer than the one who now moves time on.
    fn put_sleepers_away(&self) {
        let core = &*self.0;
        core.has_sleepers.set(false);
        let mut schedule = core.schedule.borrow_mut();
        while let Some(Ready { task, sleeps, .. }) = schedule.ready.pop_front() {
            assert!(sleeps > 0, "nobody travels in time in front of one who is ready");
            let at = self.now().saturating_add(sleeps);
            schedule.agenda.push(Event { at, order: self.next_order(), task });
            core.events.set(core.events.get() + 1);
        }
        core.next_due.set(schedule.agenda.first().map_or(Ns::MAX, |first| first.at));
        self.open_horizon(true);
    }

    /// Schedules `task` at `at` ahead of everything else of that time.
    pub(crate) fn wake_external(&self, task: TaskKey, at: Ns) {
        assert!(at > self.now(), "an arrival at {at} cannot be stamped into the past of {}", self.now());
        let order = self.0.sequence.get();
        self.0.sequence.set(order + 1);
        self.push(Event { at, order, task });
    }

    #[inline]
    fn next_order(&self) -> u64 {
        let sequence = self.0.sequence.get();
        self.0.sequence.set(sequence + 1);
        match &self.0.permute {
            None => INTERNAL | sequence,
            Some(rng) => INTERNAL | rng.borrow_mut().next_u64(),
        }
    }

    #[inline]
    fn push(&self, event: Event) {
        let core = &*self.0;
        core.schedule.borrow_mut().agenda.push(event);
        if event.at < core.next_due.get() {
            core.next_due.set(event.at);
        }
        if event.at < core.horizon.get() {
            core.horizon.set(event.at);
        }
    }

    /// Time of the earliest event, if there is one.
    pub fn next_due(&self) -> Option<Ns> {
        if !self.0.schedule.borrow().ready.is_empty() {
            return Some(self.now());
        }
        (self.0.next_due.get() != Ns::MAX).then(|| self.0.next_due.get())
    }

    #[inline]
    fn open_horizon(&self, nobody_ready: bool) {
        let core = &*self.0;
        let open = nobody_ready && core.closed.get() == 0;
        core.horizon.set(if open { core.next_due.get() } else { 0 });
    }

    /// There is one reason more (`1`) or less (`-1`) for which nobody may travel in place.
    fn close(&self, change: i32) {
        let core = &*self.0;
        core.closed.set(core.closed.get().wrapping_add_signed(change));
    }

    /// Somebody begins (`1`) or has begun (`-1`) a branch behind which others are still to begin.
    fn nest(&self, change: i32) {
        self.close(change);
        self.open_horizon(self.0.schedule.borrow().ready.is_empty());
    }

    /// Runs one event. `false` when there was none (or the power is cut).
    pub fn step(&self) -> bool {
        let ran = self.step_one();
        self.0.current.set(NOBODY);
        ran != Ran::Nothing
    }

    // In one function with the loop around it: what a call saves and restores would be a fifth of an event.
    #[inline(always)]
    fn step_one(&self) -> Ran {
        let core = &*self.0;
        if core.halted.get() {
            return Ran::Nothing;
        }
        let now = core.now.get();
        let mut schedule = core.schedule.borrow_mut();
        let Some(Due { at, task, sleeps }) = schedule.pop(now, core.next_due.get()) else {
            return Ran::Nothing;
        };
        assert!(at >= now, "the clock would go back from {now} to {at}");
        core.now.set(at);
        core.events.set(core.events.get() + 1);
        let is_put_away = sleeps > 0 && core.clock_holders.get() == 0;
        if is_put_away {
            schedule.agenda.push(Event { at: at.saturating_add(sleeps), order: self.next_order(), task });
        }
        core.next_due.set(schedule.agenda.first().map_or(Ns::MAX, |first| first.at));
        self.open_horizon(schedule.ready.is_empty());
        if is_put_away {
            return Ran::Task;
        }
        if task == ROOT {
            return Ran::Root;
        }
        let taken = schedule.tasks.take(task);
        drop(schedule);
        let Some(coroutine) = taken else { return Ran::Task };
        self.resume(task, coroutine)
    }

    /// Lets a task run, and then in place who waited for its end alone.
    #[inline(always)]
    fn resume(&self, mut task: TaskKey, mut coroutine: Box<Coroutine>) -> Ran {
        let core = &*self.0;
        loop {
            core.current.set(task);
            let has_ended = self.run_task(task, coroutine);
            // Only who ends leaves its turn to another.
            let next = if has_ended { core.next.take() } else { None };
            match next {
                Some(ROOT) => return Ran::Root,
                Some(next) => task = next,
                None => return Ran::Task,
            }
            let taken = core.schedule.borrow_mut().tasks.take(task);
            let Some(next) = taken else { return Ran::Task };
            coroutine = next;
        }
    }

    /// Lets a task run until it gives way, or ends (`true`).
    #[inline(always)]
    fn run_task(&self, task: TaskKey, mut coroutine: Box<Coroutine>) -> bool {
        let has_ended = coroutine.resume();
        let mut schedule = self.0.schedule.borrow_mut();
        if has_ended {
            schedule.tasks.close(task);
        } else {
            schedule.tasks.put(task, coroutine);
        }
        has_ended
    }

    /// Runs until no event is left.
    pub fn run(&self) {
        while self.step() {}
    }

    /// Runs `body` as one more task, on the caller's own stack, and the loop whenever it gives way.
    ///
    /// Panics when the loop runs dry first (`body` then waits for something that nobody will do) or the
    /// power is cut.
    pub fn block_on<T>(&self, body: impl FnOnce() -> T) -> T {
        assert_eq!(self.current(), NOBODY, "somebody runs on this executor already");
        let _running = Blocking(self);
        self.wake(ROOT);
        self.run_until_root();
        body()
    }

    fn run_until_root(&self) {
        loop {
            match self.step_one() {
                Ran::Root => return self.0.current.set(ROOT),
                Ran::Task => {}
                Ran::Nothing => {
                    let (now, is_cut) = (self.now(), self.halted());
                    assert!(!is_cut, "the power was cut at {now} ns and what is waited for is not done");
                    panic!("nothing is due at {now} ns and what is waited for is not done");
                }
            }
        }
    }

    /// Drops every task. For the end of a drive's life: tasks hold handles to it, and would keep it alive.
    pub fn clear(&self) {
        self.halt();
        for slot in 0.. {
            let mut schedule = self.0.schedule.borrow_mut();
            let Some(entry) = schedule.tasks.slots.get_mut(slot) else { return };
            // Branches go with their caller, who has lent them what they work on.
            let coroutine = if entry.is_branch { None } else { entry.coroutine.take() };
            drop(schedule);
            drop(coroutine);
        }
    }

    /// Begins a branch of the present task at once, before this returns; it is the present task again then.
    /// Others are still to begin behind it, so time stands still for it.
    pub(crate) fn begin_branch(&self, coroutine: Coroutine) -> TaskKey {
        let core = &*self.0;
        let (caller, branch) = (self.current(), core.schedule.borrow_mut().tasks.open(true));
        self.nest(1);
        core.current.set(branch);
        self.run_task(branch, Box::new(coroutine));
        core.current.set(caller);
        self.nest(-1);
        branch
    }

    /// Lets `task` go on in place when the present one has ended.
    pub(crate) fn continue_with(&self, task: TaskKey) {
        self.0.next.set(Some(task));
    }

    /// Ends a task where it waits; what lies on its stack is dropped. One that has ended, or does not wait,
    /// stays as it is.
    pub(crate) fn drop_task(&self, task: TaskKey) {
        let taken = self.0.schedule.borrow_mut().tasks.take(task);
        let Some(coroutine) = taken else { return };
        drop(coroutine);
        self.0.schedule.borrow_mut().tasks.close(task);
    }

    /// Moves `span` ns on in place, as an event, if nothing else is due by then.
    #[inline]
    pub(crate) fn travel(&self, span: Ns) -> bool {
        self.travel_to(self.now().saturating_add(span))
    }

    #[inline]
    fn travel_to(&self, at: Ns) -> bool {
        let may = self.may_travel(at);
        if may && self.0.clock_holders.get() == 0 {
            if self.0.has_sleepers.get() {
                self.put_sleepers_away();
            }
            self.0.now.set(at);
            self.0.events.set(self.0.events.get() + 1);
        }
        may
    }

    #[inline]
    fn may_travel(&self, at: Ns) -> bool {
        at < self.0.horizon.get() || (self.0.clock_holders.get() > 0 && !self.halted())
    }
}

/// Time stands still while this is held; see [`Sim::hold_clock`].
pub struct ClockHold {
    sim: Sim,
}

impl Drop for ClockHold {
    fn drop(&mut self) {
        self.sim.0.clock_holders.set(self.sim.0.clock_holders.get() - 1);
    }
}

/// Whoever called [`Sim::block_on`] is running; nobody is when this is dropped.
struct Blocking<'a>(&'a Sim);

impl Drop for Blocking<'_> {
    fn drop(&mut self) {
        self.0.0.current.set(NOBODY);
    }
}
