//! The cores of an application as the processor of a store: each thread has a core, and each step takes its
//! time there. Background threads share the cores of all others, or have one of their own.

use std::rc::Rc;

use kvdrive_sim::{Core, Ns, Sim, WaitQueue};
use kvdrive_store::{Cpu, Step, StepCosts, Thread, steps_ns};

/// A core for each thread.
pub(super) struct HostCpu {
    sim: Sim,
    cores: Vec<Rc<dyn Core>>,
    costs_ps: StepCosts,
    waiting: WaitQueue,
}

impl HostCpu {
    pub(super) fn new(sim: &Sim, cores: &[Rc<dyn Core>], costs_ps: StepCosts) -> HostCpu {
        HostCpu { sim: sim.clone(), cores: cores.to_vec(), costs_ps, waiting: WaitQueue::new(sim) }
    }
}

impl Cpu for HostCpu {
    fn work(&self, Thread(thread): Thread, steps: &[(Step, u64)]) {
        self.cores[thread as usize].run_noted(steps_ns(&self.costs_ps, steps), "store", "work");
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
