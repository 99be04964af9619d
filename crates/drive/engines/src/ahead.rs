//! Work ahead of need, for engines over a value log: tasks collect segments and merge the index beside the commands, so that
//! no store waits for whole segments or a merge of the whole index.
//!
//! ```text
//!   free segments    low mark + ahead           low mark                reserve
//!   ───────────────────────┼──────────────────────┼───────────────────────┼───
//!     no collection          slices between stores,  slices of 0.1 s to 0.5 s, a store that needs a segment waits for
//!                            as short as will do     victims that gain little  the victim under way
//! ```
//!
//! *Slices.* The tasks work while a store waits. One of [`STORES_BETWEEN_SLICES`] stores does, so all but one store in a
//! hundred are as fast as on a drive without collection. A slice is as long as slices were lately, and the longer the
//! fewer segments are free ([`slice_ns`]). So its length finds the point where collection is as fast as the stores,
//! whether they need 2 % or all of the controller's time, and stays there while collection frees several segments at once
//! after none for a while.
//!
//! *Collection first.* Both tasks need the same core: in a common slice, collection looks up one key while a merge writes 256
//! entries. That is right while there are free segments to store on. At the low mark, slices belong to collection alone:
//! else stores would fill segments for the eight seconds of a merge while none was collected.
//!
//! *Merges of levels.* While collection works, flushes leave the merges that the policy asks for to a task, which carries
//! them out in slices: else the slice, or the store, in which a memtable is full would wait for all of them.
//!
//! *No task waits for ever.* A task pauses where it holds no lock but that of collection or of merges. Who waits for
//! these locks, or for the next free segment, lets the task run that has it, and that one alone ([`Ahead::hurry`]).
//!
//! Engine `anykey` has the task without the slices: nothing grants any, and its work never pauses.
//!
//! What is collected and merged, and in which order, is the engine's: `lsm/collection.rs`, `anykey/room.rs`.

use std::cell::Cell;
use std::cmp::Ordering;

use kvdrive_declare::Counters;
use kvdrive_sim::{Cause, Ns, Sim, WaitQueue};

/// Stores between two slices: fewer than one in a hundred waits.
const STORES_BETWEEN_SLICES: u32 = 128;
/// The shortest slice.
const SHORTEST_SLICE_NS: Ns = 2_000_000;
/// The longest slice above the low mark, unless slices are longer than that on average.
const LONG_SLICE_NS: Ns = 96_000_000;
/// The longest slice.
const LONGEST_SLICE_NS: Ns = 512_000_000;
/// The mean before the first slice.
const FIRST_SLICE_NS: Ns = 16_000_000;

/// How long the tasks work while a store waits, if `missing` of `wanted` free segments are missing, and slices were
/// `usual_ns` long on average; 0 if none is missing. Between a quarter of that and four times that, which is reached at
/// the low mark.
pub(crate) fn slice_ns(usual_ns: Ns, missing: u32, wanted: u32) -> Ns {
    let Some(more) = missing.checked_sub(1) else { return 0 };
    let sixteenths = (more * 64 / wanted.max(1)).min(64);
    let slice_ns = ((usual_ns / 4) << (sixteenths / 16)) * Ns::from(16 + sixteenths % 16) / 16;
    match more.cmp(&wanted) {
        Ordering::Less => slice_ns.min(usual_ns.max(LONG_SLICE_NS)),
        Ordering::Equal => slice_ns.clamp(LONG_SLICE_NS, LONGEST_SLICE_NS),
        Ordering::Greater => (2 * slice_ns).clamp(2 * LONG_SLICE_NS, LONGEST_SLICE_NS),
    }
}

/// Slices of this power cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
#[counters(prefix = "gc_")]
pub(crate) struct SliceCounters {
    /// Stores that waited while collection and merges of the index worked.
    pub slices: u64,
    /// The time that they waited, ns.
    pub slice_ns: u64,
    /// The longest of these waits, ns.
    #[counter(state)]
    pub longest_slice_ns: u64,
}

/// Segments more than the low mark that are to be free on a drive of `segments`, of which as many are `asked` for: a small
/// drive would keep too large a part of itself free.
#[inline]
pub(crate) fn ahead_segments(asked: u32, segments: u32) -> u32 {
    asked.min((segments + 48) / 64)
}

/// What a task does beside stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Collect,
    Merge,
}

impl Work {
    fn other(self) -> Work {
        match self {
            Work::Collect => Work::Merge,
            Work::Merge => Work::Collect,
        }
    }
}

/// The tasks of one drive, and the slices in which they work.
pub(crate) struct Ahead {
    pub sim: Sim,
    /// With fewer free segments than these, stores collect, or work is done beside them.
    pub enough_segments: Cell<u32>,
    /// Does the task run that collects?
    pub is_collecting: Cell<bool>,
    /// Does the task run that merges the index?
    pub is_merging: Cell<bool>,
    /// Does it merge the whole index?
    pub is_merging_all: Cell<bool>,
    /// Is the whole index to be merged?
    pub wants_merge: Cell<bool>,
    /// Pages of values that stores had filled when it was last asked whether a merge is worth it.
    pub asked_at: Cell<u64>,
    /// Pages of values that stores had filled when nothing was worth collecting any more.
    pub idle_since: Cell<Option<u64>>,
    tasks: Cell<u32>,
    paused_tasks: Cell<u32>,
    /// The end of the present slice, or of the last one.
    until: Cell<Ns>,
    /// Does this slice belong to collection alone?
    is_collection_first: Cell<bool>,
    /// Stores since the last slice.
    stores: Cell<u32>,
    /// Mean length of the last slices.
    usual_ns: Cell<Ns>,
    counters: Cell<SliceCounters>,
    /// By [`Work`]: waits for something that this task does.
    hurried: [Cell<u32>; 2],
    granted: WaitQueue,
    slice_over: WaitQueue,
    /// Signals that a victim is empty, or that a task has come to an end.
    advanced: WaitQueue,
}

impl Ahead {
    pub fn new(sim: &Sim) -> Ahead {
        Ahead {
            sim: sim.clone(),
            enough_segments: Cell::new(0),
            is_collecting: Cell::new(false),
            is_merging: Cell::new(false),
            is_merging_all: Cell::new(false),
            wants_merge: Cell::new(false),
            asked_at: Cell::new(0),
            idle_since: Cell::new(None),
            tasks: Cell::new(0),
            paused_tasks: Cell::new(0),
            until: Cell::new(0),
            is_collection_first: Cell::new(false),
            stores: Cell::new(0),
            usual_ns: Cell::new(FIRST_SLICE_NS),
            counters: Cell::default(),
            hurried: Default::default(),
            granted: WaitQueue::new(sim),
            slice_over: WaitQueue::new(sim),
            advanced: WaitQueue::new(sim),
        }
    }

    /// Is there a task, or work for one?
    #[inline]
    pub fn is_active(&self) -> bool {
        self.tasks.get() > 0 || self.wants_merge.get()
    }

    /// Begins a task, which works in slices.
    pub fn spawn(&self, task: impl FnOnce() + 'static) {
        self.tasks.set(self.tasks.get() + 1);
        self.sim.spawn(task);
    }

    /// Called by a task at its end.
    pub fn end_task(&self) {
        self.tasks.set(self.tasks.get() - 1);
        self.end_slice_if_all_pause();
        self.advance();
    }

    fn end_slice_if_all_pause(&self) {
        if self.paused_tasks.get() == self.tasks.get() {
            self.slice_over.wake_all();
        }
    }

    /// Called by a task often, while it holds no lock that a store may need: pauses when its slice is over.
    #[inline]
    pub fn step(&self, work: Work) {
        if self.tasks.get() > 0 && !self.may_work(work) {
            self.pause(work);
        }
    }

    fn may_work(&self, work: Work) -> bool {
        let hurried = |work: Work| self.hurried[work as usize].get() > 0;
        let is_in_slice = || {
            let has_turn = work == Work::Collect || !self.is_collection_first.get();
            has_turn && self.sim.now() < self.until.get()
        };
        hurried(work) || !hurried(work.other()) && is_in_slice()
    }

    fn pause(&self, work: Work) {
        self.paused_tasks.set(self.paused_tasks.get() + 1);
        self.end_slice_if_all_pause();
        while !self.may_work(work) {
            self.granted.wait();
        }
        self.paused_tasks.set(self.paused_tasks.get() - 1);
    }

    /// Runs `wait`, which needs something that a task of this kind does; meanwhile this task does not pause, and the other
    /// one does.
    pub fn hurry<T>(&self, work: Work, wait: impl FnOnce() -> T) -> T {
        let hurried = &self.hurried[work as usize];
        hurried.set(hurried.get() + 1);
        self.granted.wake_all();
        let done = wait();
        hurried.set(hurried.get() - 1);
        self.granted.wake_all();
        done
    }

    /// Called by a task when it has done something for which a store may wait.
    pub fn advance(&self) {
        self.advanced.wake_all();
    }

    /// Waits for [`Ahead::advance`].
    pub fn wait_for_advance(&self) {
        self.advanced.wait();
    }

    /// A store comes by. Once in a while it lets the tasks work for a slice, and waits for that. `slice` says how long it
    /// is, if slices were so long on average, and whether merges wait while collection works.
    #[inline]
    pub fn grant(&self, slice: impl FnOnce(Ns) -> (Ns, bool)) {
        self.stores.set(self.stores.get() + 1);
        if self.stores.get() < STORES_BETWEEN_SLICES || self.tasks.get() == 0 || self.is_hurried() {
            return;
        }
        self.stores.set(0);
        let began = self.sim.now();
        let (slice_ns, is_collection_first) = slice(self.usual_ns.get());
        self.until.set(began + slice_ns.max(SHORTEST_SLICE_NS));
        self.is_collection_first.set(is_collection_first && self.is_collecting.get());
        self.granted.wake_all();
        let _spent = self.sim.spend(Cause::Room);
        self.slice_over.wait();
        self.count_slice(self.sim.now() - began);
    }

    fn count_slice(&self, slice_ns: Ns) {
        /// Slices of which the mean is taken.
        const LAST_SLICES: Ns = 16;
        let mean_ns = (self.usual_ns.get() * (LAST_SLICES - 1) + slice_ns) / LAST_SLICES;
        self.usual_ns.set(mean_ns.max(SHORTEST_SLICE_NS));
        let SliceCounters { slices, slice_ns: all_ns, longest_slice_ns } = self.counters.get();
        self.counters.set(SliceCounters {
            slices: slices + 1,
            slice_ns: all_ns + slice_ns,
            longest_slice_ns: longest_slice_ns.max(slice_ns),
        });
    }

    /// Slices so far.
    pub fn counters(&self) -> SliceCounters {
        self.counters.get()
    }

    fn is_hurried(&self) -> bool {
        self.hurried.iter().any(|waits| waits.get() > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_slice_is_the_longer_the_fewer_segments_are_free() {
        const MS: Ns = 1_000_000;
        let slices =
            |usual_ms, missing: [u32; 6]| missing.map(|missing| slice_ns(usual_ms * MS, missing, 8) / MS);
        assert_eq!(slices(16, [0, 1, 5, 7, 9, 10]), [0, 4, 16, 32, 96, 192]);
        assert_eq!(slices(80, [1, 5, 7, 8, 9, 10]), [20, 80, 96, 96, 320, 512], "96 ms will do");
        assert_eq!(slices(200, [1, 5, 7, 8, 9, 10]), [50, 200, 200, 200, 512, 512], "96 ms will not do");
        assert_eq!([1, 2, 3].map(|missing| slice_ns(8 * MS, missing, 1) / MS), [2, 96, 192]);
    }

    #[test]
    fn a_task_that_a_store_waits_for_works_alone_and_so_does_collection_at_the_low_mark() {
        let sim = Sim::new();
        sim.block_on(|| {
            let ahead = Rc::new(Ahead::new(&sim));
            let done = Rc::new([Cell::new(0), Cell::new(0)]);
            let (all, ends) = (&ahead, Rc::new(Cell::new(false)));
            all.is_collecting.set(true);
            for work in [Work::Collect, Work::Merge] {
                let (ahead, done, ends) = (ahead.clone(), done.clone(), ends.clone());
                all.spawn(move || {
                    while !ends.get() {
                        ahead.step(work);
                        ahead.sim.sleep(1_000_000);
                        done[work as usize].set(done[work as usize].get() + 1);
                    }
                    ahead.end_task();
                });
            }
            let worked = |act: &dyn Fn()| {
                let before = [done[0].get(), done[1].get()];
                act();
                [done[0].get() - before[0], done[1].get() - before[1]]
            };
            let slices = |is_collection_first: bool| {
                for _ in 0..STORES_BETWEEN_SLICES {
                    all.grant(|_| (10_000_000, is_collection_first));
                }
            };
            assert_eq!(worked(&|| slices(false)), [10, 10]);
            assert_eq!([worked(&|| slices(true)), worked(&|| slices(true))], [[10, 0], [10, 0]]);
            let wait = || all.hurry(Work::Merge, || all.sim.sleep(5_500_000));
            assert_eq!(worked(&wait), [0, 5]);
            all.sim.sleep(50_000_000);
            all.is_collecting.set(false);
            assert_eq!(worked(&|| slices(true)), [10, 10], "collection does not run");
            ends.set(true);
            all.hurry(Work::Collect, || all.sim.sleep(3_000_000));
            all.hurry(Work::Merge, || all.sim.sleep(3_000_000));
        });
    }
}
