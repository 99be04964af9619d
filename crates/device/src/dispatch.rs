//! Who takes commands from the queues, and on which cores they are worked on.
//!
//! ```text
//!   context       queues ─► one of n contexts: fetch, decode, run, complete        steps go to cores by role
//!
//!   round-robin   queues ─► dispatcher: fetch, decode, deal ─┬► I/O thread 0, first come first served:
//!                           (a core)                         │  run, complete            (a core each)
//!                                                            └► I/O thread 1 ...
//! ```
//!
//! Dealt in turn, command *n* goes to I/O thread *n* mod k whatever waits there: two commands of one
//! queue may run at once and end out of order, and a short one may stand behind a long one while another
//! thread is idle. This is how the emulator of the SAKER paper deals commands out.
//!
//! Commands that belong together (*write*, *transfer*: [`kvdrive_link::queue`]) keep the order of their
//! queue: each waits on its thread for its turn. That cannot last for ever, since the one whose turn it
//! is was dealt earlier: of all commands that are dealt and not done, the first dealt waits for no other.

use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_engines::firmware::{Role, Roles, Thread};
use kvdrive_link::Fetched;
use kvdrive_sim::{Ns, Sim, TaskCell, WaitQueue};

use crate::controller::Controller;
use crate::requests::{decode, handle, serve};

/// Who takes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Contexts, each of which takes the next command and runs it to its end.
    Context {
        /// So many.
        contexts: u32,
        /// Whose cores take which step.
        roles: Roles,
    },
    /// A dispatcher, which deals commands in turn to I/O threads that run them to their ends. Each has a
    /// core.
    RoundRobin {
        /// So many, besides the dispatcher.
        io_threads: u32,
        /// What the dispatcher takes to deal a command out, besides fetching and decoding it.
        deal_ns: Ns,
    },
}

impl Dispatch {
    /// How many commands are run at once: contexts, or I/O threads.
    pub fn runners(self) -> u32 {
        match self {
            Dispatch::Context { contexts, .. } => contexts,
            Dispatch::RoundRobin { io_threads, .. } => io_threads,
        }
    }

    /// The cores there are.
    pub fn roles(self) -> Roles {
        match self {
            Dispatch::Context { roles, .. } => roles,
            Dispatch::RoundRobin { io_threads, .. } => Roles::Threads(io_threads),
        }
    }
}

/// The commands of one I/O thread, in the order in which they were dealt.
struct IoQueue {
    commands: TaskCell<VecDeque<Fetched>>,
    bell: WaitQueue,
}

impl IoQueue {
    fn new(sim: &Sim) -> IoQueue {
        IoQueue { commands: TaskCell::default(), bell: WaitQueue::new(sim) }
    }

    fn put(&self, decoded: Fetched) {
        self.commands.borrow_mut().push_back(decoded);
        self.bell.wake_one();
    }

    fn take(&self) -> Fetched {
        loop {
            let next = self.commands.borrow_mut().pop_front();
            match next {
                Some(decoded) => return decoded,
                None => self.bell.wait(),
            }
        }
    }
}

/// Starts whoever takes the commands of `drive`, for as long as it has power.
pub fn start(drive: &Rc<Controller>, sim: &Sim, dispatch: Dispatch) {
    match dispatch {
        Dispatch::Context { contexts, .. } => {
            for _ in 0..contexts {
                let drive = drive.clone();
                sim.spawn(move || serve(drive));
            }
        }
        Dispatch::RoundRobin { io_threads, deal_ns } => {
            let queues: Vec<Rc<IoQueue>> = (0..io_threads).map(|_| Rc::new(IoQueue::new(sim))).collect();
            for (thread, queue) in (0..).zip(queues.clone()) {
                let drive = drive.clone();
                sim.spawn(move || run(&drive, thread, &queue));
            }
            let drive = drive.clone();
            sim.spawn(move || deal(&drive, &queues, deal_ns));
        }
    }
}

/// The dispatcher.
fn deal(drive: &Controller, queues: &[Rc<IoQueue>], deal_ns: Ns) {
    drive.cores.run_as(Thread::Dispatcher);
    for queue in queues.iter().cycle() {
        let fetched = drive.link.next_command();
        decode(drive, &fetched);
        drive.cores.of(Role::Dispatch).run_noted(deal_ns, "controller", "deal");
        queue.put(fetched);
    }
}

/// One I/O thread.
fn run(drive: &Rc<Controller>, thread: u32, queue: &IoQueue) {
    drive.cores.run_as(Thread::Io(thread));
    loop {
        handle(drive, queue.take(), true);
    }
}
