//! Firmware contexts: tasks, each of which takes one command at a time and runs it to its end.
//!
//! ```text
//!   context      take ─► run ─► complete ─► take ...
//!   long command take ─► a slice ─┬► slice ─► slice ─► complete ─► wait until a context is free
//!                                 └► gives its context away: another task takes commands from here on
//! ```
//!
//! `controller.contexts` tasks take commands. With one context, the next command waits until the present one has ended,
//! as on the published board. After a List of 1 MiB it would have waited for tens of milliseconds, so a long command
//! continues without a context after its first slice, and contends for cores and flash like any other command.
//!
//! Not here: what happens to a command ([`crate::requests`]), when a slice ends ([`crate::namespaces`]).

use std::collections::BTreeSet;
use std::rc::Rc;

use kvdrive_link::Port;
use kvdrive_sim::{TaskCell, TaskKey, WaitQueue};

use crate::controller::Controller;
use crate::requests::{fetch, handle};

/// Name under which the time of these tasks is reported.
pub const CONTEXTS: &str = "contexts";

/// Most long commands without a context at a time, since each may hold an answer of 2 MiB in memory. Beyond this number
/// a long command keeps its context.
const WITHOUT_MAX: usize = 16;

/// The contexts of a controller.
pub(crate) struct Contexts<P: Port> {
    drive: Rc<Controller<P>>,
    /// Tasks whose command has given their context away.
    without: TaskCell<BTreeSet<TaskKey>>,
    /// Tasks that have neither a command nor a context.
    idle: WaitQueue,
}

impl<P: Port> Contexts<P> {
    /// Starts `count` contexts, which run as long as the drive has power.
    pub(crate) fn start(drive: &Rc<Controller<P>>, count: u32) {
        let sim = drive.port.sim();
        let (drive, idle) = (drive.clone(), WaitQueue::new(sim));
        let contexts = Rc::new(Contexts { drive: drive.clone(), without: TaskCell::default(), idle });
        let of_long = Rc::downgrade(&contexts);
        drive.namespace.on_slice_end(Rc::new(move || {
            if let Some(contexts) = of_long.upgrade() {
                contexts.give_away();
            }
        }));
        for _ in 0..count {
            let contexts = contexts.clone();
            sim.spawn(move || {
                contexts.drive.port.sim().occupy(CONTEXTS);
                contexts.serve();
            });
        }
    }

    /// Takes commands and completes them.
    fn serve(&self) {
        let task = self.drive.port.sim().current();
        loop {
            handle(&self.drive, fetch(&self.drive), false);
            let is_without = self.without.borrow_mut().remove(&task);
            if is_without {
                self.idle.wait();
            }
        }
    }

    /// The running task's command is long. If the task still has its context, another task takes commands in its place.
    fn give_away(self: &Rc<Self>) {
        let sim = self.drive.port.sim();
        let task = sim.current();
        let mut without = self.without.borrow_mut();
        if without.len() >= WITHOUT_MAX || !without.insert(task) {
            return;
        }
        drop(without);
        if self.idle.wake_one() {
            return;
        }
        let contexts = self.clone();
        sim.spawn(move || {
            contexts.drive.port.sim().occupy_with(task);
            contexts.serve();
        });
    }
}
