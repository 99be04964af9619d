//! Firmware cores as a store's processor: a step takes its time on a core, and threads are the calls that are
//! inside the store.

use kvdrive_sim::{Cause, Core, Ns, Sim, TaskCell, TimeShare, WaitQueue};
use kvdrive_store::{BACKGROUND_SLICE_NS, Background, Cpu, Step, StepCosts, Thread, steps_ns};

use crate::firmware::{Cores, Role};

/// Guesses for a core of some 2 GHz, until they are measured: an access to memory outside the caches costs 100 ns, a
/// comparison of cached data 2 ns, a byte that is copied or summed 0.1 ns.
pub const GUESSED_COSTS_PS: StepCosts = [
    100_000, 150_000, 100_000, 150_000, 100_000, 150_000, 2_000, 100, 100, 50_000, 100_000, 100_000, 100_000,
    50_000, 100_000, 100_000, 500_000, 2_000_000,
];

/// Firmware cores.
pub struct FirmwareCpu {
    sim: Sim,
    cores: Cores,
    /// The first of the threads for background work, and where that is done.
    background: Option<(Thread, TimeShare)>,
    costs_ps: StepCosts,
    waiting: WaitQueue,
}

impl FirmwareCpu {
    /// The cores of a drive. Threads from `first` on do background work, if the store has any: on the cores of
    /// collection, or on a core of their own.
    pub fn new(
        sim: &Sim,
        cores: &Cores,
        costs_ps: StepCosts,
        first: Thread,
        background: Option<Background>,
    ) -> FirmwareCpu {
        let background = background.map(|background| match background {
            Background::Shared => TimeShare::new(sim, cores.beside(Role::Collection), BACKGROUND_SLICE_NS),
            Background::Own => {
                TimeShare::new(sim, &[cores.add(sim, "firmware.background")], BACKGROUND_SLICE_NS)
            }
        });
        let background = background.map(|share| (first, share));
        let (cores, waiting) = (cores.clone(), WaitQueue::new(sim));
        FirmwareCpu { sim: sim.clone(), cores, background, costs_ps, waiting }
    }
}

impl Cpu for FirmwareCpu {
    fn work(&self, thread: Thread, steps: &[(Step, u64)]) {
        let span_ns = steps_ns(&self.costs_ps, steps);
        match &self.background {
            Some((first, share)) if thread >= *first => share.run_noted(span_ns, "store", "work"),
            _ => self.cores.of(Role::Dispatch).run_noted(span_ns, "store", "work"),
        }
    }

    fn pause(&self, _: Thread, span_ns: Ns) {
        self.sim.sleep(span_ns);
    }

    fn wait(&self, _: Thread) {
        let _spent = self.sim.spend(Cause::Room);
        self.waiting.wait();
    }

    fn wake(&self) {
        self.waiting.wake_all();
    }
}

/// Thread numbers for callers of a store: a number has one caller at a time.
pub struct Threads {
    count: u32,
    free: TaskCell<Vec<u32>>,
    freed: WaitQueue,
}

impl Threads {
    /// Numbers 0 to below `count`.
    pub fn new(sim: &Sim, count: u32) -> Threads {
        Threads { count, free: TaskCell::new((0..count).rev().collect()), freed: WaitQueue::new(sim) }
    }

    /// Number of threads.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A thread number for one call; waits while all are in use.
    pub fn take(&self) -> ThreadNumber<'_> {
        loop {
            let free = self.free.borrow_mut().pop();
            match free {
                Some(number) => return ThreadNumber { threads: self, number },
                None => self.freed.wait(),
            }
        }
    }
}

/// A thread number that is in use.
pub struct ThreadNumber<'a> {
    threads: &'a Threads,
    number: u32,
}

impl ThreadNumber<'_> {
    /// The thread with this number.
    pub fn thread(&self) -> Thread {
        Thread(self.number)
    }
}

impl Drop for ThreadNumber<'_> {
    fn drop(&mut self) {
        self.threads.free.borrow_mut().push(self.number);
        self.threads.freed.wake_one();
    }
}
