//! An application's cores as a store's processor: each thread has one, and a step takes its time on it.

use std::rc::Rc;

use kvdrive_sim::{Ns, Resource, Sim, WaitQueue};
use kvdrive_store::{Cpu, Step, Thread};

/// What steps of a store cost on a core, in picoseconds each, by [`Step`].
pub type StepCosts = [u64; Step::ALL.len()];

/// A core for each thread.
pub(super) struct HostCpu {
    sim: Sim,
    cores: Vec<Rc<Resource>>,
    costs_ps: StepCosts,
    waiting: WaitQueue,
}

impl HostCpu {
    pub(super) fn new(sim: &Sim, cores: &[Rc<Resource>], costs_ps: StepCosts) -> HostCpu {
        HostCpu { sim: sim.clone(), cores: cores.to_vec(), costs_ps, waiting: WaitQueue::new(sim) }
    }
}

impl Cpu for HostCpu {
    fn work(&self, Thread(thread): Thread, steps: &[(Step, u64)]) {
        let all_ps: u64 = steps.iter().map(|(step, times)| self.costs_ps[*step as usize] * times).sum();
        self.cores[thread as usize].run_noted(all_ps.div_ceil(1000), "store", "work");
    }

    fn pause(&self, _: Thread, span_ns: Ns) {
        self.sim.sleep(span_ns);
    }

    fn wait(&self, _: Thread) {
        self.waiting.wait();
    }

    fn wake(&self) {
        self.waiting.wake_all();
    }
}
