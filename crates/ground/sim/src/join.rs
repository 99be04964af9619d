//! Tasks that wait for other tasks: for a spawned task, or for their own branches.

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

/// A spawned task. Dropping the handle detaches the task, which continues to run.
pub struct JoinHandle<T> {
    sim: Sim,
    task: TaskKey,
    state: Rc<JoinState<T>>,
}

impl Sim {
    /// Starts a task. It first runs when the loop reaches it, at the present time.
    pub fn spawn<T: 'static>(&self, body: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        let state = Rc::new(JoinState { value: Cell::new(None), done: WaitQueue::new(self) });
        let result = state.clone();
        let task = self.schedule(Coroutine::new(move || {
            result.value.set(Some(body()));
            result.done.wake_all();
        }));
        JoinHandle { sim: self.clone(), task, state }
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the task's end and returns its result.
    pub fn join(self) -> T {
        loop {
            if let Some(value) = self.state.value.take() {
                return value;
            }
            self.state.done.wait();
        }
    }

    /// The result if the task has ended; does not wait.
    pub fn try_take(&self) -> Option<T> {
        self.state.value.take()
    }

    /// Ends the task at the point where it waits: the values on its stack are dropped, the innermost call
    /// first. A task that has ended is left as it is.
    pub fn cancel(self) {
        self.sim.drop_task(self.task);
    }
}

/// The branches of one call of [`join_all`]. They borrow from that call, so they are dropped before it
/// returns or unwinds.
struct Branches<'a> {
    sim: &'a Sim,
    caller: TaskKey,
    begun: RefCell<Vec<TaskKey>>,
    /// Branches that have not ended.
    left: Cell<usize>,
    /// The caller is suspended until the last branch has ended.
    is_awaited: Cell<bool>,
}

impl Branches<'_> {
    /// Counts the end of a branch; the last branch lets the caller continue in place.
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

/// Runs all of `bodies` concurrently until every one has returned; results are in the order given. Each body
/// starts at once, in the order given; the last one runs on the caller's own stack.
pub fn join_all<T, F: FnOnce() -> T>(sim: &Sim, bodies: impl IntoIterator<Item = F>) -> Vec<T> {
    let mut bodies: Vec<F> = bodies.into_iter().collect();
    let Some(last) = bodies.pop() else { return Vec::new() };
    let results: Vec<Cell<Option<T>>> = bodies.iter().map(|_| Cell::new(None)).collect();
    // Declared after `results`, so dropped before them.
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
        // outlive this call. Each branch has ended when the call returns. If the call unwinds, `branches`
        // drops the branches first (also when a power cut drops all tasks: `Sim::clear` leaves branches to
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
