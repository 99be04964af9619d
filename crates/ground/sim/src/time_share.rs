//! Background work on cores that mainly serve something else: in slices, on whichever core of a set is idle.
//!
//! ```text
//!   core 0   serves ........ | slice | serves .. | slice | serves ...      a slice goes to an idle core, or else to
//!   core 1   serves | slice | serves ................................      the cores in turn; after it, the core is
//!   core 2   (idle) | slice | slice | slice | (idle) ................      left to its main work for as long
//! ```

use std::cell::Cell;
use std::rc::Rc;

use crate::executor::Sim;
use crate::resource::Resource;
use crate::{Core, Ns};

/// A set of cores, shared by background tasks. The main work of a core waits for one slice at most, and gets
/// half of the core's time if it needs it, however many background tasks there are.
pub struct TimeShare {
    sim: Sim,
    slice_ns: Ns,
    cores: Vec<SharedCore>,
    next: Cell<usize>,
}

struct SharedCore {
    core: Rc<Resource>,
    /// Background slices that run on the core or wait for it.
    slices: Cell<u32>,
    /// Until this time the main work of the core has precedence: during a slice, and after it for as long as the slice
    /// took.
    others_until: Cell<Ns>,
}

impl SharedCore {
    /// Is the core in use or wanted by other work now?
    fn is_wanted(&self) -> bool {
        !self.core.has_free() && self.core.users() > self.slices.get()
    }
}

impl TimeShare {
    /// Shares `cores` (at least one) in slices of up to `slice_ns`.
    pub fn new(sim: &Sim, cores: &[Rc<Resource>], slice_ns: Ns) -> TimeShare {
        assert!(!cores.is_empty() && slice_ns > 0, "there is a core, and a slice takes time");
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
                // The clock is held: no task waits for another.
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

/// The core for work that any core may take: the first idle core, or else the cores in turn.
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
