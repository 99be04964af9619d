//! The executor: the clock, and the loop that resumes tasks when their events are due (`tasks`, `agenda`).
//!
//! A task is a closure on a stack of its own ([`crate::coroutine`]). It calls plain functions; the few that
//! wait (here, in [`crate::WaitQueue`] and what is built on it) register what they wait for, suspend the
//! task, and return when it is resumed.
//!
//! Invariants:
//! * `now` never goes back, and only this file advances it.
//! * Events of the same time run in the order in which they were scheduled, except that *external* arrivals
//!   (see [`crate::wall`]) come before all other events of their time. A permuted executor
//!   ([`Sim::permuted`]) draws the order within one time from a seed instead: a test mode that finds code
//!   which relies on an order that is not guaranteed.
//! * A wake-up may be spurious: a waiting task checks its condition again when it is resumed.
//! * No task suspends while a [`crate::TaskCell`] is borrowed.
//!
//! A task that sleeps while no other event is due earlier does not suspend: the clock is advanced in place.
//! That still counts as an event. While [`join_all`] starts its branches, only the last branch may do so,
//! because the branches that start after the others must still see the present time.
//!
//! A task that is granted a resource and would then only sleep ([`crate::Resource::run`]) is scheduled for
//! the end of that sleep without being resumed first. It takes its place in the order of events when its turn
//! comes, as if it had been resumed. Taking the place earlier would change the order of events of one time,
//! and so reports.
//!
//! Not here: what tasks wait for and why ([`crate::Resource`], locks), and where the machine's clock comes in
//! ([`crate::wall`]).

mod serving;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::agenda::Event;
use crate::cell::assert_nothing_borrowed;
use crate::coroutine::{self, Coroutine};
use crate::occupation::{OccupationId, Occupations};
use crate::schedule::{Due, Ready, Schedule};
use crate::slices::Slices;
use crate::tasks::{NO_TASK, ROOT, TaskKey};
use crate::{Ns, Rng, Trace};
pub use serving::Spending;

/// Bit set in the order of every internal event, so that external events of the same time sort before it.
const INTERNAL: u64 = 1 << 63;

struct Core {
    now: Cell<Ns>,
    sequence: Cell<u64>,
    events: Cell<u64>,
    current: Cell<TaskKey>,
    /// The sums to which the time of the running task is added.
    occupies: Cell<OccupationId>,
    occupations: RefCell<Occupations>,
    /// The task that continues in place when the running task ends; see [`join_all`].
    next: Cell<Option<TaskKey>>,
    /// Time of the earliest event in `agenda`; `Ns::MAX` when it is empty.
    next_due: Cell<Ns>,
    /// Number of reasons why no task may advance the clock in place: each branch that is being started and is
    /// not the last of its call, a test mode, a power cut.
    closed: Cell<u32>,
    /// A task may advance the clock in place to any time before this one: the time of the next event. It is 0 while a
    /// task is ready that would do more than sleep.
    horizon: Cell<Ns>,
    /// From this many events on, no task continues in place until the next step.
    in_place_until: Cell<u64>,
    /// `ready` may contain tasks that would only sleep.
    has_sleepers: Cell<bool>,
    /// Number of [`ClockHold`]s; see [`Sim::hold_clock`].
    clock_holders: Cell<u32>,
    slices: Slices,
    halted: Cell<bool>,
    schedule: RefCell<Schedule>,
    permute: Option<RefCell<Rng>>,
    trace: Trace,
}

/// The task that a step has resumed, by kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepKind {
    /// Nothing: there is no event, or the power is cut.
    Nothing,
    /// A task, or a key whose task has ended.
    Task,
    /// The caller of [`Sim::block_on`] is due.
    Root,
}

/// Handle to one executor and its clock; a clone refers to the same executor.
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
            current: Cell::new(NO_TASK),
            occupies: Cell::default(),
            occupations: RefCell::default(),
            next: Cell::new(None),
            next_due: Cell::new(Ns::MAX),
            closed: Cell::new(u32::from(permute.is_some())),
            horizon: Cell::new(0),
            in_place_until: Cell::new(u64::MAX),
            has_sleepers: Cell::new(false),
            clock_holders: Cell::new(0),
            slices: Slices::default(),
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

    /// Number of events so far: tasks resumed, and sleeps that continued in place.
    pub fn events(&self) -> u64 {
        self.0.events.get()
    }

    /// The recorder of steps that `explain` prints; off unless it is started.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Makes every event a step of its own, so that no sleep continues in place. Power-cut tests need to stop
    /// between any two events.
    pub fn step_every_event(&self) {
        self.close(1);
        self.0.horizon.set(0);
    }

    /// Makes the next step return after about `events` events, even if its task could continue in place. The
    /// order of events stays the same: the task's next event is the next one to run.
    pub fn bound_step(&self, events: u64) {
        self.0.in_place_until.set(self.events().saturating_add(events));
    }

    /// Adds a task that starts at the present time, when the loop reaches it.
    pub(crate) fn schedule(&self, coroutine: Coroutine) -> TaskKey {
        let mut schedule = self.0.schedule.borrow_mut();
        let task = schedule.tasks.open(false, OccupationId::default());
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

    /// Waits until `at` as an external arrival: the task runs before all other events of that time.
    pub fn sleep_until_external(&self, at: Ns) {
        if self.must_wait_for(at) {
            self.wake_external(self.current(), at);
            self.suspend_until(at);
        }
    }

    /// Must the task suspend to wait for `at`? If not, the clock now stands at `at`.
    #[inline]
    fn must_wait_for(&self, at: Ns) -> bool {
        if self.now() >= at && !self.halted() {
            return false;
        }
        !self.travel_to(at, 1)
    }

    fn suspend_until(&self, at: Ns) {
        loop {
            self.suspend();
            if self.now() >= at {
                return;
            }
        }
    }

    /// Suspends the running task until it is woken. Wake-ups may be spurious.
    #[inline]
    pub fn suspend(&self) {
        assert_nothing_borrowed();
        if self.current() == ROOT { self.run_until_root() } else { coroutine::suspend() }
    }

    /// Lets no time pass while the guard is held: every sleep returns at once. Everything else happens as
    /// usual, with the same result as if every resource were infinitely fast. Used for work before a study begins.
    ///
    /// Sleeps that began before are not cut short; when no other event is left, time advances to them.
    pub fn hold_clock(&self) -> ClockHold {
        self.0.clock_holders.set(self.0.clock_holders.get() + 1);
        ClockHold { sim: self.clone() }
    }

    /// Runs other tasks that are ready now first, if there are any.
    pub fn let_others_run(&self) {
        if self.next_due() == Some(self.now()) {
            self.yield_now();
        }
    }

    /// Runs other tasks that are due now first.
    pub fn yield_now(&self) {
        self.wake(self.current());
        self.suspend();
    }

    /// Tasks between two slices of their work; see [`Sim::end_slice`].
    pub(crate) fn slices(&self) -> &Slices {
        &self.0.slices
    }

    /// Makes the next sleep of the running task suspend it.
    pub(crate) fn end_in_place(&self) {
        self.0.horizon.set(0);
    }

    /// The running task.
    #[inline]
    pub fn current(&self) -> TaskKey {
        self.0.current.get()
    }

    /// Has the power been cut? Guards that are dropped afterwards do nothing.
    #[inline]
    pub fn halted(&self) -> bool {
        self.0.halted.get()
    }

    /// Cuts the power: no task runs again, and no guard acts when it is dropped. Tasks are dropped when the
    /// loop ends.
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

    /// Schedules `task`, which at the present time would do nothing but sleep for `span` ns: it may be
    /// resumed only after that span. The result is the same as if the task had been resumed and had slept:
    /// the same events in the same order, with one switch of stacks less.
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

    /// Moves all ready tasks to the agenda: each would only sleep, and longer than the task that now advances
    /// the clock.
    fn put_sleepers_away(&self) {
        let core = &*self.0;
        core.has_sleepers.set(false);
        let mut schedule = core.schedule.borrow_mut();
        while let Some(Ready { task, sleeps, .. }) = schedule.ready.pop_front() {
            assert!(sleeps > 0, "no task travels in time before a ready one");
            let at = self.now().saturating_add(sleeps);
            schedule.agenda.push(Event { at, order: self.next_order(), task });
            core.events.set(core.events.get() + 1);
        }
        core.next_due.set(schedule.agenda.first().map_or(Ns::MAX, |first| first.at));
        self.open_horizon(true);
    }

    /// Schedules `task` at `at`, ahead of all other events of that time.
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

    /// Adds (`1`) or removes (`-1`) one reason why no task may advance the clock in place.
    fn close(&self, change: i32) {
        let core = &*self.0;
        core.closed.set(core.closed.get().wrapping_add_signed(change));
    }

    /// A branch that is followed by other branches is being started (`1`) or has been started (`-1`).
    fn nest(&self, change: i32) {
        self.close(change);
        self.open_horizon(self.0.schedule.borrow().ready.is_empty());
    }

    /// Runs one event. Returns `false` if there was none, or if the power is cut.
    pub fn step(&self) -> bool {
        let ran = self.step_one();
        self.0.current.set(NO_TASK);
        ran != StepKind::Nothing
    }

    // Inlined into the loop around it: saving and restoring registers for a call would take a fifth of an
    // event.
    #[inline(always)]
    fn step_one(&self) -> StepKind {
        let core = &*self.0;
        if core.halted.get() {
            return StepKind::Nothing;
        }
        let now = core.now.get();
        let mut schedule = core.schedule.borrow_mut();
        let Some(Due { at, task, sleeps }) = schedule.pop(now, core.next_due.get()) else {
            return StepKind::Nothing;
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
            return StepKind::Task;
        }
        if task == ROOT {
            return StepKind::Root;
        }
        let taken = schedule.tasks.take(task);
        drop(schedule);
        let Some((coroutine, occupies)) = taken else { return StepKind::Task };
        core.occupies.set(occupies);
        self.resume(task, coroutine)
    }

    /// Resumes a task, and then in place the task that waited only for its end.
    #[inline(always)]
    fn resume(&self, mut task: TaskKey, mut coroutine: Box<Coroutine>) -> StepKind {
        let core = &*self.0;
        loop {
            core.current.set(task);
            let has_ended = self.run_task(task, coroutine);
            // Only a task that has ended passes its turn on.
            let next = if has_ended { core.next.take() } else { None };
            match next {
                Some(ROOT) => return StepKind::Root,
                Some(next) => task = next,
                None => return StepKind::Task,
            }
            let taken = core.schedule.borrow_mut().tasks.take(task);
            let Some((next, occupies)) = taken else { return StepKind::Task };
            core.occupies.set(occupies);
            coroutine = next;
        }
    }

    /// Resumes a task until it suspends, or ends (`true`).
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

    /// Runs all events that are due by `until`, each as a step of its own; then the clock stands at `until`. If `is_enough`
    /// after the events of a time, the clock stands at that time. A power cut stops it, too.
    pub fn run_until(&self, until: Ns, is_enough: impl Fn() -> bool) {
        assert!(until >= self.now(), "the clock would go back from {} to {until}", self.now());
        self.close(1);
        self.0.horizon.set(0);
        while let Some(due) = self.next_due().filter(|due| *due <= until) {
            if due > self.now() && is_enough() {
                break;
            }
            if !self.step() {
                break;
            }
        }
        self.close(-1);
        if !self.halted() && !is_enough() {
            self.0.now.set(until);
        }
    }

    /// Runs `body` as one more task, on the caller's own stack, and runs the loop whenever `body` suspends.
    ///
    /// Panics if the power is cut, or if no event is left before `body` returns (`body` then waits for
    /// something that no task will do).
    pub fn block_on<T>(&self, body: impl FnOnce() -> T) -> T {
        assert_eq!(self.current(), NO_TASK, "this executor is running already");
        let _running = Blocking(self);
        self.wake(ROOT);
        self.run_until_root();
        body()
    }

    fn run_until_root(&self) {
        loop {
            match self.step_one() {
                StepKind::Root => {
                    self.0.occupies.set(OccupationId::default());
                    return self.0.current.set(ROOT);
                }
                StepKind::Task => {}
                StepKind::Nothing => {
                    let (now, is_cut) = (self.now(), self.halted());
                    assert!(!is_cut, "the power was cut at {now} ns and what is waited for is not done");
                    panic!("nothing is due at {now} ns and what is waited for is not done");
                }
            }
        }
    }

    /// Drops every task. For the end of a drive's life: tasks hold handles to the drive, and would keep it
    /// alive.
    pub fn clear(&self) {
        self.halt();
        for slot in 0.. {
            let mut schedule = self.0.schedule.borrow_mut();
            let Some(entry) = schedule.tasks.slots.get_mut(slot) else { return };
            // A branch is dropped by its caller, since it borrows from the caller's stack.
            let coroutine = if entry.is_branch { None } else { entry.coroutine.take() };
            drop(schedule);
            drop(coroutine);
        }
    }

    /// Starts a branch of the running task at once; the caller is the running task again when this returns.
    /// Other branches are still to be started after it, so time does not advance for it.
    pub(crate) fn begin_branch(&self, coroutine: Coroutine) -> TaskKey {
        let core = &*self.0;
        let (caller, branch) =
            (self.current(), core.schedule.borrow_mut().tasks.open(true, core.occupies.get()));
        self.nest(1);
        core.current.set(branch);
        self.run_task(branch, Box::new(coroutine));
        core.current.set(caller);
        self.nest(-1);
        branch
    }

    /// Lets `task` continue in place when the running task has ended.
    pub(crate) fn continue_with(&self, task: TaskKey) {
        self.0.next.set(Some(task));
    }

    /// Ends a task at the point where it waits; the values on its stack are dropped. A task that has ended,
    /// or does not wait, is left as it is.
    pub(crate) fn drop_task(&self, task: TaskKey) {
        let taken = self.0.schedule.borrow_mut().tasks.take(task);
        let Some((coroutine, _)) = taken else { return };
        drop(coroutine);
        self.0.schedule.borrow_mut().tasks.close(task);
    }

    /// Advances the clock by `span` ns in place, counted as `events` events, if no other event is due by then.
    #[inline]
    pub(crate) fn travel(&self, span: Ns, events: u64) -> bool {
        self.travel_to(self.now().saturating_add(span), events)
    }

    #[inline]
    fn travel_to(&self, at: Ns, events: u64) -> bool {
        let may = self.may_travel(at);
        if may && self.0.clock_holders.get() == 0 {
            if self.0.has_sleepers.get() {
                self.put_sleepers_away();
            }
            self.0.now.set(at);
            let events = self.0.events.get() + events;
            self.0.events.set(events);
            if events >= self.0.in_place_until.get() {
                self.0.horizon.set(0);
            }
        }
        may
    }

    #[inline]
    fn may_travel(&self, at: Ns) -> bool {
        at < self.0.horizon.get() || (self.0.clock_holders.get() > 0 && !self.halted())
    }
}

/// Time does not advance while this is held; see [`Sim::hold_clock`].
pub struct ClockHold {
    sim: Sim,
}

impl Drop for ClockHold {
    fn drop(&mut self) {
        self.sim.0.clock_holders.set(self.sim.0.clock_holders.get() - 1);
    }
}

/// Marks the caller of [`Sim::block_on`] as running; dropping it marks no task as running.
struct Blocking<'a>(&'a Sim);

impl Drop for Blocking<'_> {
    fn drop(&mut self) {
        self.0.0.current.set(NO_TASK);
    }
}
