//! Tasks that wait for other tasks: for one that was spawned, or for branches of their own.

#![expect(unsafe_code, reason = "branches borrow from the call that waits for them; see the SAFETY comment")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::coroutine::Coroutine;
use crate::executor::Sim;
use crate::tasks::TaskKey;
use crate::wait_queue::WaitQueue;

struct JoinState<T> {
    value: Cell<Option<T>>,
    done: WaitQueue,
}

/// A task that was spawned. Dropping this lets the task go on alone.
pub struct JoinHandle<T> {
    sim: Sim,
    task: TaskKey,
    state: Rc<JoinState<T>>,
}

impl<T: 'static> JoinHandle<T> {
    pub(crate) fn spawn(sim: &Sim, body: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        let state = Rc::new(JoinState { value: Cell::new(None), done: WaitQueue::new(sim) });
        let result = state.clone();
        let task = sim.schedule(Coroutine::new(move || {
            result.value.set(Some(body()));
            result.done.wake_all();
        }));
        JoinHandle { sim: sim.clone(), task, state }
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the task's end: its result.
    pub fn join(self) -> T {
        loop {
            if let Some(value) = self.state.value.take() {
                return value;
            }
            self.state.done.wait();
        }
    }

    /// The result if the task has ended, without waiting.
    pub fn try_take(&self) -> Option<T> {
        self.state.value.take()
    }

    /// Ends the task where it waits: what lies on its stack is dropped, the innermost call first. One that
    /// has ended stays as it is.
    pub fn cancel(self) {
        self.sim.drop_task(self.task);
    }
}

/// The branches of one call of [`join_all`]. They work on what the call has lent them, so they are dropped
/// before it ends, however it ends.
struct Branches<'a> {
    sim: &'a Sim,
    caller: TaskKey,
    begun: RefCell<Vec<TaskKey>>,
    /// How many have not ended.
    left: Cell<usize>,
    /// The caller has given way until the last one has ended.
    is_awaited: Cell<bool>,
}

impl Branches<'_> {
    /// A branch has ended; the last one lets the caller go on, in place.
    fn end_one(&self) {
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 && self.is_awaited.get() {
            self.sim.continue_with(self.caller);
        }
    }

    fn wait(&self) {
        self.is_awaited.set(true);
        while self.left.get() > 0 {
            self.sim.suspend();
        }
    }
}

impl Drop for Branches<'_> {
    fn drop(&mut self) {
        self.begun.take().into_iter().for_each(|branch| self.sim.drop_task(branch));
    }
}

/// Runs all of `bodies` side by side until every one is done; results in the order given. Each begins at once,
/// in the order given; the last one runs on the caller's own stack.
pub fn join_all<T, F: FnOnce() -> T>(sim: &Sim, bodies: impl IntoIterator<Item = F>) -> Vec<T> {
    let mut bodies: Vec<F> = bodies.into_iter().collect();
    let Some(last) = bodies.pop() else { return Vec::new() };
    let results: Vec<Cell<Option<T>>> = bodies.iter().map(|_| Cell::new(None)).collect();
    // Declared behind `results`, so dropped before them.
    let branches = Branches {
        sim,
        caller: sim.current(),
        begun: RefCell::default(),
        left: Cell::new(bodies.len()),
        is_awaited: Cell::new(false),
    };
    for (body, result) in bodies.into_iter().zip(&results) {
        let branches = &branches;
        let run = Box::new(move || {
            result.set(Some(body()));
            branches.end_one();
        });
        // SAFETY: `run` borrows `results`, `branches` and what the caller's bodies borrow, all of which
        // outlive this call. The branch has ended when the call returns, and where the call is unwound,
        // `branches` drops it first (also where a power cut drops all tasks: `Sim::clear` leaves branches to
        // their callers).
        let coroutine = unsafe { Coroutine::borrowing(run) };
        let begun = sim.begin_branch(coroutine);
        branches.begun.borrow_mut().push(begun);
    }
    let last = last();
    branches.wait();
    let mut results: Vec<T> = results.iter().filter_map(Cell::take).collect();
    results.push(last);
    results
}
