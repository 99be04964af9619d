//! Collection ahead of need: a task collects beside the commands, so that no store waits for whole segments.
//!
//! ```text
//!   free segments    low mark + ahead           low mark                reserve
//!   ───────────────────────┼──────────────────────┼───────────────────────┼───
//!     no collection          slices of moved values  and victims that gain   a store that needs a segment waits for
//!                            between stores          little                  the round under way
//! ```
//!
//! *Slices.* Values are moved while a store waits, [`SLICE_STEPS`] for one of [`STORES_BETWEEN_SLICES`] stores, and more
//! the fewer segments are free. The stores between two slices do not wait. That keeps all but one store in a hundred as
//! fast as on a drive without collection, and bounds the others. Lookups and merges of the index run beside stores.
//!
//! *No task waits for ever.* The task pauses between two moved values only, where it holds no lock but that of
//! collection. Who waits for that lock lets it run to the end of its round ([`Ahead::hurry`]).
//!
//! What is collected, and its order, is in [`super::collection`].

use std::cell::Cell;

use kvdrive_sim::{Cause, Sim, WaitQueue};

/// Values that are moved in a slice while few segments are missing; four times as many at most.
pub(super) const SLICE_STEPS: u32 = 256;
/// Stores between two slices: fewer than one in a hundred waits.
const STORES_BETWEEN_SLICES: u32 = 128;

/// The state of the task.
pub(super) struct Ahead {
    pub sim: Sim,
    pub is_running: Cell<bool>,
    /// Values that the task may move before it pauses; `None`: any number.
    pub steps_left: Cell<Option<u32>>,
    /// Does the task wait for a slice?
    is_paused: Cell<bool>,
    /// Stores since the last slice.
    stores: Cell<u32>,
    /// Tasks that wait for the lock of collection.
    hurried: Cell<u32>,
    /// Pages of values that stores had filled when nothing was worth collecting any more.
    pub idle_since: Cell<Option<u64>>,
    granted: WaitQueue,
    /// Signals the end of a slice.
    pub paused: WaitQueue,
}

impl Ahead {
    pub fn new(sim: &Sim) -> Ahead {
        Ahead {
            sim: sim.clone(),
            is_running: Cell::new(false),
            steps_left: Cell::new(None),
            is_paused: Cell::new(false),
            stores: Cell::new(0),
            hurried: Cell::new(0),
            idle_since: Cell::new(None),
            granted: WaitQueue::new(sim),
            paused: WaitQueue::new(sim),
        }
    }

    /// Called by a collection before it moves a value, with no other lock held: pauses at the end of a slice.
    pub fn step(&self) {
        if self.hurried.get() > 0 {
            return;
        }
        if self.steps_left.get() == Some(0) {
            self.paused.wake_all();
            self.is_paused.set(true);
            while self.steps_left.get() == Some(0) && self.hurried.get() == 0 {
                self.granted.wait();
            }
            self.is_paused.set(false);
        }
        self.steps_left.set(self.steps_left.get().map(|left| left.saturating_sub(1)));
    }

    /// Called by a collection before it looks keys up, and at its end: a store waits for moved values only.
    pub fn end_slice(&self) {
        if self.steps_left.get().is_some() {
            self.steps_left.set(Some(0));
            self.paused.wake_all();
        }
    }

    /// Runs `wait`, which takes the lock of collection; meanwhile no collection pauses.
    pub fn hurry<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.hurried.set(self.hurried.get() + 1);
        self.granted.wake_all();
        let done = wait();
        self.hurried.set(self.hurried.get() - 1);
        done
    }

    /// A store comes by. Once in a while it lets the task move `steps` values and waits for that.
    pub fn grant(&self, steps: u32) {
        self.stores.set(self.stores.get() + 1);
        if self.stores.get() < STORES_BETWEEN_SLICES || !self.is_paused.get() || self.hurried.get() > 0 {
            return;
        }
        self.stores.set(0);
        self.is_paused.set(false);
        self.steps_left.set(Some(steps));
        self.granted.wake_all();
        let _spent = self.sim.spend(Cause::Room);
        self.paused.wait();
    }
}
