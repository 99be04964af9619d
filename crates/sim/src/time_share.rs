//! Work beside that which a core is there for: in slices, on whichever of some cores has time.
//!
//! ```text
//!   core 0   serves ........ | slice | serves .. | slice | serves ...      a slice goes to a core that is idle, or
//!   core 1   serves | slice | serves ................................      else to the cores in turn; then whoever
//!   core 2   (idle) | slice | slice | slice | (idle) ................      serves there has as long as it took
//! ```

use std::cell::Cell;
use std::rc::Rc;

use crate::executor::Sim;
use crate::resource::Resource;
use crate::{Core, Ns};

/// Some cores, as whoever works on them beside others has them. Whoever a core is there for waits a slice at most, and
/// has it for half of the time if he wants it, however many tasks work beside him.
pub struct TimeShare {
    sim: Sim,
    slice_ns: Ns,
    cores: Vec<SharedCore>,
    next: Cell<usize>,
}

struct SharedCore {
    core: Rc<Resource>,
    /// Slices that it is having now, or that wait for it.
    slices: Cell<u32>,
    /// Until then it is the others', if they want it: during a slice, and behind it for as long as that took.
    others_until: Cell<Ns>,
}

impl SharedCore {
    /// Does somebody else keep it from being had at once?
    fn is_wanted(&self) -> bool {
        !self.core.has_free() && self.core.users() > self.slices.get()
    }
}

impl TimeShare {
    /// Of these cores, at least one, in slices of up to `slice_ns`.
    pub fn new(sim: &Sim, cores: &[Rc<Resource>], slice_ns: Ns) -> TimeShare {
        assert!(!cores.is_empty() && slice_ns > 0, "somebody works, for some time");
        let shared = |core: &Rc<Resource>| SharedCore {
            core: core.clone(),
            slices: Cell::new(0),
            others_until: Cell::new(0),
        };
        TimeShare {
            sim: sim.clone(),
            slice_ns,
            cores: cores.iter().map(shared).collect(),
            next: Cell::new(0),
        }
    }

    fn run_slice(&self, span: Ns, room: &'static str, what: &'static str) {
        let index = idle_or_next(self.cores.iter().map(|shared| &*shared.core), &self.next);
        let shared = &self.cores[index];
        let mut now = self.sim.now();
        while shared.is_wanted() && now < shared.others_until.get() {
            self.sim.sleep_until(shared.others_until.get());
            let before = std::mem::replace(&mut now, self.sim.now());
            if before == now {
                // The clock is held: nobody waits for anybody.
                break;
            }
        }
        shared.others_until.set(now + 2 * span);
        shared.slices.set(shared.slices.get() + 1);
        shared.core.run_noted(span, room, what);
        shared.slices.set(shared.slices.get() - 1);
        shared.others_until.set(self.sim.now() + span);
    }
}

impl Core for TimeShare {
    fn run_noted(&self, span: Ns, room: &'static str, what: &'static str) {
        let mut left = span;
        while left > 0 {
            let slice = left.min(self.slice_ns);
            self.run_slice(slice, room, what);
            left -= slice;
        }
    }
}

/// Which of these cores takes work that any of them may take: the first that is idle, or else each in turn.
pub fn idle_or_next<'a>(cores: impl ExactSizeIterator<Item = &'a Resource>, next: &Cell<usize>) -> usize {
    let count = cores.len();
    cores.enumerate().find(|(_, core)| core.is_idle()).map_or_else(
        || {
            let turn = next.get();
            next.set((turn + 1) % count);
            turn
        },
        |(index, _)| index,
    )
}
