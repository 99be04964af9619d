//! The executor: a slab of tasks, an agenda of (time, order, task) events, and the loop that joins them.
//!
//! Invariants:
//! * `now` never goes back, and only this file moves it.
//! * Events of the same time run in the order in which they were scheduled, except that *external* arrivals
//!   (see [`crate::wall`]) of a time come before everything else of that time. A permuted executor
//!   ([`Sim::permuted`]) draws the order within one time from a seed instead: a test mode that finds code
//!   which relies on an order nobody promised.
//! * A wake-up may be spurious, and of a task that would only go to sleep it may be left out
//!   ([`Sim::wake_asleep`]). Every leaf future checks its own condition when polled.
//! * Futures run here must wait on things of this crate: the `Waker` they are polled with does nothing.
//!
//! A task that sleeps while nothing else is due earlier is not put away: time moves on under it and it
//! continues in place. That is still counted as an event. A combinator that polls several futures in turn
//! ([`join_all`]) allows it to the last of them only, since all others have one behind them that must still
//! see the present time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::agenda::{Agenda, Event};
use crate::wait_queue::WaitQueue;
use crate::{Ns, Rng, Trace};

/// Names a task for as long as it lives; a key of a task that has ended wakes nobody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskKey {
    slot: u32,
    generation: u32,
}

/// The task that [`Sim::block_on`] polls from its own stack.
const ROOT: TaskKey = TaskKey { slot: u32::MAX, generation: 0 };
/// Set in the order of every internal event, so that external ones of the same time sort before it.
const INTERNAL: u64 = 1 << 63;

/// A task that is due now.
struct Ready {
    order: u64,
    task: TaskKey,
    /// It would only begin to sleep so long.
    sleep_ns: Ns,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct TaskSlot {
    generation: u32,
    /// `None` while the task is being polled, and in a free slot.
    future: Option<Task>,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<TaskSlot>,
    free: Vec<u32>,
}

struct Core {
    now: Cell<Ns>,
    sequence: Cell<u64>,
    events: Cell<u64>,
    current: Cell<TaskKey>,
    /// Earliest time in `agenda`; `Ns::MAX` when it is empty.
    next_due: Cell<Ns>,
    /// How many combinators are polling a child that is not their last one; in-place time travel needs zero.
    nested: Cell<u32>,
    in_place: Cell<bool>,
    /// A task may travel in place to any time before this: up to the next event, nowhere while somebody is
    /// ready.
    horizon: Cell<Ns>,
    /// How many hold the clock; see [`Sim::hold_clock`].
    clock_holders: Cell<u32>,
    halted: Cell<bool>,
    agenda: RefCell<Agenda>,
    /// What is due at the present time, in order; empty in permuted mode.
    ready: RefCell<VecDeque<Ready>>,
    tasks: RefCell<Tasks>,
    permute: Option<RefCell<Rng>>,
    trace: Trace,
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
            current: Cell::new(ROOT),
            next_due: Cell::new(Ns::MAX),
            nested: Cell::new(0),
            in_place: Cell::new(permute.is_none()),
            horizon: Cell::new(0),
            clock_holders: Cell::new(0),
            halted: Cell::new(false),
            agenda: RefCell::default(),
            ready: RefCell::new(VecDeque::new()),
            tasks: RefCell::new(Tasks::default()),
            permute,
            trace: Trace::default(),
        }))
    }

    /// Present model time in ns.
    #[inline]
    pub fn now(&self) -> Ns {
        self.0.now.get()
    }

    /// Events that have run so far: tasks polled, and sleeps that continued in place.
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
        self.0.in_place.set(false);
        self.0.horizon.set(0);
    }

    /// Starts a task; it first runs when the loop gets to it, at the present time.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let join = Rc::new(JoinState { value: Cell::new(None), done: WaitQueue::new(self) });
        let result = join.clone();
        let task: Task = Box::pin(async move {
            let value = future.await;
            result.value.set(Some(value));
            result.done.wake_all();
        });
        let mut tasks = self.0.tasks.borrow_mut();
        let slot = tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push(TaskSlot::default());
            (tasks.slots.len() - 1) as u32
        });
        let entry = &mut tasks.slots[slot as usize];
        entry.future = Some(task);
        let key = TaskKey { slot, generation: entry.generation };
        drop(tasks);
        self.wake(key);
        JoinHandle(join)
    }

    /// Waits `span` ns of model time.
    #[inline]
    pub fn sleep(&self, span: Ns) -> Sleep<'_> {
        self.sleep_until(self.now().saturating_add(span))
    }

    /// Waits until model time `at`; a time in the past does not wait.
    #[inline]
    pub fn sleep_until(&self, at: Ns) -> Sleep<'_> {
        Sleep { sim: self, at, external: false, scheduled: false }
    }

    /// Waits until `at` as an arrival from outside: it runs before everything else of that time.
    pub fn sleep_until_external(&self, at: Ns) -> Sleep<'_> {
        Sleep { sim: self, at, external: true, scheduled: false }
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
    pub async fn let_others_run(&self) {
        if self.next_due() == Some(self.now()) {
            self.yield_now().await;
        }
    }

    /// Lets other tasks that are due now run first.
    pub fn yield_now(&self) -> Yield<'_> {
        Yield { sim: self, yielded: false }
    }

    /// The task being polled.
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
        self.0.horizon.set(0);
    }

    /// Schedules `task` at the present time.
    #[inline]
    pub fn wake(&self, task: TaskKey) {
        self.wake_asleep(task, 0);
    }

    /// Schedules `task` at the present time, when it would only begin to sleep `span` ns: that happens
    /// then, in its place, and the task is polled when it is over. `false`: it is polled as by
    /// [`Sim::wake`] and must see to its sleep itself.
    #[inline]
    pub(crate) fn wake_asleep(&self, task: TaskKey, span: Ns) -> bool {
        let core = &*self.0;
        if self.halted() {
            return false;
        }
        core.horizon.set(0);
        let order = self.next_order();
        if core.permute.is_some() {
            self.push(Event { at: self.now(), order, task });
            return false;
        }
        let sleep_ns = if core.clock_holders.get() == 0 { span } else { 0 };
        core.ready.borrow_mut().push_back(Ready { order, task, sleep_ns });
        sleep_ns > 0
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
        core.agenda.borrow_mut().push(event);
        if event.at < core.next_due.get() {
            core.next_due.set(event.at);
        }
        if event.at < core.horizon.get() {
            core.horizon.set(event.at);
        }
    }

    /// Time of the earliest event, if there is one.
    pub(crate) fn next_due(&self) -> Option<Ns> {
        if !self.0.ready.borrow().is_empty() {
            return Some(self.now());
        }
        (self.0.next_due.get() != Ns::MAX).then(|| self.0.next_due.get())
    }

    /// Takes the earliest event out and moves the clock to it: whose it is, and how long that one begins to
    /// sleep.
    #[inline]
    fn pop(&self) -> Option<(TaskKey, Ns)> {
        let core = &*self.0;
        let mut ready = core.ready.borrow_mut();
        if let Some(front) = ready.front() {
            // What is ready is of the present time; so an event of the agenda is rarely older.
            let other_first = core.next_due.get() == core.now.get()
                && core.agenda.borrow().first().is_some_and(|first| first.order < front.order);
            if !other_first {
                let (task, sleep_ns) = (front.task, front.sleep_ns);
                ready.pop_front();
                self.open_horizon(ready.is_empty());
                return Some((task, sleep_ns));
            }
        }
        let mut agenda = core.agenda.borrow_mut();
        let event = agenda.pop()?;
        core.next_due.set(agenda.first().map_or(Ns::MAX, |first| first.at));
        assert!(
            event.at >= core.now.get(),
            "the clock would go back from {} to {}",
            core.now.get(),
            event.at
        );
        core.now.set(event.at);
        self.open_horizon(ready.is_empty());
        Some((event.task, 0))
    }

    #[inline]
    fn open_horizon(&self, nobody_ready: bool) {
        let core = &*self.0;
        let open = nobody_ready && core.in_place.get() && core.nested.get() == 0 && !core.halted.get();
        core.horizon.set(if open { core.next_due.get() } else { 0 });
    }

    /// A combinator begins (`1`) or ends (`-1`) to poll a child behind which others are still to be polled.
    fn nest(&self, change: i32) {
        let core = &*self.0;
        core.nested.set(core.nested.get().wrapping_add_signed(change));
        self.open_horizon(core.ready.borrow().is_empty());
    }

    /// Runs one event. `false` when there was none (or the power is cut).
    pub fn step(&self) -> bool {
        self.step_with(None)
    }

    fn step_with(&self, root: Option<&mut dyn FnMut(&mut Context<'_>)>) -> bool {
        if self.halted() {
            return false;
        }
        let Some((key, sleep_ns)) = self.pop() else { return false };
        let core = &*self.0;
        core.events.set(core.events.get() + 1);
        if sleep_ns > 0 && !self.sleeps_through(key, sleep_ns) {
            return true;
        }
        core.current.set(key);
        let mut context = Context::from_waker(Waker::noop());
        if key == ROOT {
            if let Some(root) = root {
                root(&mut context);
            }
            return true;
        }
        // A slot changes its generation when its task ends, so the key of an ended task finds none.
        let taken = {
            let mut tasks = core.tasks.borrow_mut();
            let entry = &mut tasks.slots[key.slot as usize];
            if entry.generation == key.generation { entry.future.take() } else { None }
        };
        let Some(mut future) = taken else { return true };
        let finished = future.as_mut().poll(&mut context).is_ready();
        let mut tasks = core.tasks.borrow_mut();
        let entry = &mut tasks.slots[key.slot as usize];
        if finished {
            entry.generation = entry.generation.wrapping_add(1);
            tasks.free.push(key.slot);
        } else {
            entry.future = Some(future);
        }
        true
    }

    /// A task begins to sleep. `true`: time has moved on to its end.
    fn sleeps_through(&self, key: TaskKey, span: Ns) -> bool {
        let core = &*self.0;
        let is_alive =
            key == ROOT || core.tasks.borrow().slots[key.slot as usize].generation == key.generation;
        // While the clock is held, sleeps that have begun before go on.
        if !is_alive || (core.clock_holders.get() == 0 && self.travel(span, 1)) {
            return true;
        }
        let at = self.now().saturating_add(span);
        self.push(Event { at, order: self.next_order(), task: key });
        false
    }

    /// Runs until no event is left.
    pub fn run(&self) {
        while self.step() {}
    }

    /// Polls `future` as one more task and runs the loop until it is done.
    ///
    /// Panics when the loop runs dry first (`future` then waits for something that nobody will do) or the
    /// power is cut.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut result = None;
        self.wake(ROOT);
        loop {
            let mut poll_root = |context: &mut Context<'_>| {
                if let Poll::Ready(value) = future.as_mut().poll(context) {
                    result = Some(value);
                }
            };
            let ran = self.step_with(Some(&mut poll_root));
            if let Some(value) = result {
                return value;
            }
            assert!(
                !self.halted(),
                "the power was cut at {} ns and the awaited future is not done",
                self.now()
            );
            assert!(ran, "nothing is due at {} ns and the awaited future is not done", self.now());
        }
    }

    /// Drops every task. For the end of a drive's life: tasks hold handles to it, and would keep it alive.
    pub fn clear(&self) {
        self.halt();
        let futures: Vec<Option<Task>> =
            self.0.tasks.borrow_mut().slots.iter_mut().map(|slot| slot.future.take()).collect();
        drop(futures);
    }

    /// Moves `span` ns on in place, as `events` events, if nothing else is due by then.
    #[inline]
    pub(crate) fn travel(&self, span: Ns, events: u64) -> bool {
        let at = self.now().saturating_add(span);
        let may = self.may_travel(at);
        if may {
            self.travel_to(at, events);
        }
        may
    }

    #[inline]
    fn travel_to(&self, at: Ns, events: u64) {
        if self.0.clock_holders.get() == 0 {
            self.0.now.set(at);
            self.0.events.set(self.0.events.get() + events);
        }
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

/// Waits for a point in time; see [`Sim::sleep`].
pub struct Sleep<'a> {
    sim: &'a Sim,
    at: Ns,
    external: bool,
    scheduled: bool,
}

impl Future for Sleep<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let sim = self.sim;
        if sim.now() >= self.at && !sim.halted() {
            return Poll::Ready(());
        }
        if !self.scheduled {
            if sim.may_travel(self.at) {
                sim.travel_to(self.at, 1);
                return Poll::Ready(());
            }
            self.scheduled = true;
            if self.external {
                sim.wake_external(sim.current(), self.at);
            } else {
                let event = Event { at: self.at, order: sim.next_order(), task: sim.current() };
                sim.push(event);
            }
        }
        Poll::Pending
    }
}

/// Gives way once; see [`Sim::yield_now`].
pub struct Yield<'a> {
    sim: &'a Sim,
    yielded: bool,
}

impl Future for Yield<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        self.sim.wake(self.sim.current());
        Poll::Pending
    }
}

struct JoinState<T> {
    value: Cell<Option<T>>,
    done: WaitQueue,
}

/// Waits for a spawned task and takes its result. Dropping it lets the task go on alone.
pub struct JoinHandle<T>(Rc<JoinState<T>>);

impl<T> JoinHandle<T> {
    /// The task's result, once it has ended.
    pub async fn join(self) -> T {
        loop {
            if let Some(value) = self.0.value.take() {
                return value;
            }
            self.0.done.wait().await;
        }
    }

    /// The result if the task has ended, without waiting.
    pub fn try_take(&self) -> Option<T> {
        self.0.value.take()
    }
}

/// A future of [`join_all`], and its result once it has one.
struct Branch<F: Future> {
    future: Option<Pin<Box<F>>>,
    result: Option<F::Output>,
}

impl<F: Future> Branch<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        let polled = future.as_mut().poll(context);
        polled.map(|value| {
            self.result = Some(value);
            self.future = None;
        })
    }
}

/// Runs all futures of one task side by side until every one is done; results in the order given.
pub async fn join_all<F: Future>(sim: &Sim, futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let branch = |future| Branch { future: Some(Box::pin(future)), result: None };
    let mut branches: Vec<Branch<F>> = futures.into_iter().map(branch).collect();
    std::future::poll_fn(|context| {
        let Some(last) = branches.iter().rposition(|branch| branch.future.is_some()) else {
            return Poll::Ready(());
        };
        // Those behind a branch must still see the present time, so only the last one may travel in place.
        sim.nest(1);
        let mut waiting = false;
        for branch in &mut branches[..last] {
            waiting |= branch.poll(context).is_pending();
        }
        sim.nest(-1);
        waiting |= branches[last].poll(context).is_pending();
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    branches.into_iter().filter_map(|branch| branch.result).collect()
}
