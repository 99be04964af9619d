//! Which tasks take commands from the queues, and on which cores they run.
//!
//! ```text
//!   context       queues ─► one of n contexts ([`crate::contexts`]):               steps go to cores by role
//!                           fetch, decode, run, complete
//!
//!   round-robin   queues ─► dispatcher: fetch, decode, deal ─┬► I/O thread 0, first come first served:
//!                           (a core)                         │  run, complete            (a core each)
//!                                                            └► I/O thread 1 ...
//! ```
//!
//! Command *n* goes to I/O thread *n* mod k, however many commands wait for that thread. So two commands of one queue
//! may run at once and end out of order, and a short command may wait for a long one while another thread is idle. This
//! is how the emulator of the SAKER paper deals commands out.
//!
//! Commands that belong together (*write*, *transfer*: [`kvdrive_link::queue`]) keep the order of their queue: each
//! waits on its thread for its turn. This cannot deadlock: a command waits only for commands that were dealt before it,
//! so the earliest unfinished command waits for none. Commands about queues are not dealt: the dispatcher, which takes
//! from queues, carries them out itself.

use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_engines::firmware::{FirmwareThread, Role};
use kvdrive_link::Port;
use kvdrive_sim::{Ns, Sim, TaskCell, WaitQueue};

use crate::config::Dispatch;
pub use crate::contexts::CONTEXTS;
use crate::contexts::Contexts;
use crate::controller::waiting::is_of_dispatcher;
use crate::controller::{Controller, Fetched};
use crate::requests::{decode, fetch, handle};

/// Name under which the time of the task that deals commands out is reported.
pub const DISPATCHER: &str = "dispatcher";
/// Name under which the time of the tasks that run dealt commands is reported.
pub const IO_THREADS: &str = "io-threads";

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

/// Starts the tasks that take the commands of `drive`, for as long as it has power.
pub fn start<P: Port>(drive: &Rc<Controller<P>>, dispatch: Dispatch) {
    if let Some(exposed) = drive.namespace.clone().exposed() {
        drive.port.expose(exposed);
    }
    let controller = Rc::downgrade(drive);
    drive.port.on_end(Rc::new(move |session| {
        if let Some(controller) = controller.upgrade() {
            let ended = controller.admin_queues.borrow_mut().remove(&session.number());
            drop(ended);
            controller.namespace.end_session(session);
        }
    }));
    let sim = drive.port.sim();
    match dispatch {
        Dispatch::Context { contexts, .. } => Contexts::start(drive, contexts),
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
fn deal<P: Port>(drive: &Rc<Controller<P>>, queues: &[Rc<IoQueue<P::Request>>], deal_ns: Ns) {
    drive.cores.run_as(FirmwareThread::Dispatcher);
    drive.port.sim().occupy(DISPATCHER);
    for queue in queues.iter().cycle() {
        let fetched = next_to_deal(drive);
        drive.cores.of(Role::Dispatch).run_noted(deal_ns, "controller", "deal");
        queue.put(fetched);
    }
}

/// The next command for an I/O thread, decoded. The dispatcher runs commands about queues itself, so that the thread of
/// a queue's first command does not depend on how many queues were created before.
fn next_to_deal<P: Port>(drive: &Rc<Controller<P>>) -> Fetched<P::Request> {
    loop {
        let fetched = fetch(drive);
        decode(drive, fetched.decoded.as_ref());
        if !is_of_dispatcher(&fetched.request) {
            return fetched;
        }
        handle(drive, fetched, true);
    }
}

/// One I/O thread.
fn run<P: Port>(drive: &Rc<Controller<P>>, thread: u32, queue: &IoQueue<P::Request>) {
    drive.cores.run_as(FirmwareThread::Io(thread));
    drive.port.sim().occupy(IO_THREADS);
    loop {
        handle(drive, queue.take(), true);
    }
}
