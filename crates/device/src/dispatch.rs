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
use kvdrive_link::Port;
use kvdrive_sim::{Ns, Sim, TaskCell, WaitQueue};
use serde::Deserialize;

use crate::controller::Controller;
use crate::requests::{Fetched, decode, fetch, handle, serve};

/// Who takes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "DispatchKeys")]
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

/// Those keys of `[controller]` that say who takes commands: all of them, whoever it is.
#[derive(Deserialize)]
struct DispatchKeys {
    dispatch: DispatchWord,
    contexts: u32,
    cores: u32,
    roles: RolesWord,
    io_threads: u32,
    deal_ns: Ns,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DispatchWord {
    Context,
    RoundRobin,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RolesWord {
    Any,
    Own,
}

impl TryFrom<DispatchKeys> for Dispatch {
    type Error = String;

    /// Fails with a line that begins with the key to blame.
    fn try_from(keys: DispatchKeys) -> Result<Dispatch, String> {
        let DispatchKeys { dispatch, contexts, cores, roles, io_threads, deal_ns } = keys;
        let roles = match (dispatch, roles) {
            (DispatchWord::RoundRobin, _) => return Ok(Dispatch::RoundRobin { io_threads, deal_ns }),
            (DispatchWord::Context, RolesWord::Any) => Roles::Any(cores),
            (DispatchWord::Context, RolesWord::Own) if cores as usize == Role::ALL.len() => Roles::Own,
            (DispatchWord::Context, RolesWord::Own) => {
                let roles = Role::ALL.len();
                return Err(format!(
                    "controller.cores: {cores}; controller.roles = \"own\" takes {roles}, one a role"
                ));
            }
        };
        Ok(Dispatch::Context { contexts, roles })
    }
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
struct IoQueue<R> {
    commands: TaskCell<VecDeque<Fetched<R>>>,
    bell: WaitQueue,
}

impl<R> IoQueue<R> {
    fn new(sim: &Sim) -> IoQueue<R> {
        IoQueue { commands: TaskCell::default(), bell: WaitQueue::new(sim) }
    }

    fn put(&self, decoded: Fetched<R>) {
        self.commands.borrow_mut().push_back(decoded);
        self.bell.wake_one();
    }

    fn take(&self) -> Fetched<R> {
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
pub fn start<P: Port>(drive: &Rc<Controller<P>>, dispatch: Dispatch) {
    let sim = drive.port.sim();
    match dispatch {
        Dispatch::Context { contexts, .. } => {
            for _ in 0..contexts {
                let drive = drive.clone();
                sim.spawn(move || serve(drive));
            }
        }
        Dispatch::RoundRobin { io_threads, deal_ns } => {
            let queues: Vec<Rc<IoQueue<P::Request>>> =
                (0..io_threads).map(|_| Rc::new(IoQueue::new(sim))).collect();
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
fn deal<P: Port>(drive: &Controller<P>, queues: &[Rc<IoQueue<P::Request>>], deal_ns: Ns) {
    drive.cores.run_as(Thread::Dispatcher);
    for queue in queues.iter().cycle() {
        let fetched = fetch(drive);
        decode(drive, fetched.asked.as_ref());
        drive.cores.of(Role::Dispatch).run_noted(deal_ns, "controller", "deal");
        queue.put(fetched);
    }
}

/// One I/O thread.
fn run<P: Port>(drive: &Rc<Controller<P>>, thread: u32, queue: &IoQueue<P::Request>) {
    drive.cores.run_as(Thread::Io(thread));
    loop {
        handle(drive, queue.take(), true);
    }
}
