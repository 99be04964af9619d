//! A drive in the server's own loop: run to completion, without handing commands to another thread or waking
//! one.
//!
//! ```text
//!   sim::wall::run ─► some events of the drive ─► ServerSource::poll: completions out, sockets read ─► events ...
//!                 └─► nothing to do: arm, ServerSleeper::sleep, where sockets, drive and others wake it, then disarm
//! ```
//!
//! Polling sockets and sending cost a system call each, so while the drive is busy, several commands share
//! one call.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use kvdrive_link::shared::DriveLoop;
use kvdrive_sim::Ns;
use kvdrive_sim::wall::{Polled, Sleeper, Source};

use super::{Server, TICK};

/// Polls of a busy drive between two sends.
const LOOKS_PER_SEND: u32 = 16;
/// Polls of a busy drive between two polls of the sockets.
const LOOKS_PER_POLL: u32 = 64;

/// The server as the drive's loop calls it.
struct ServerInLoop {
    server: Server,
    looks: u32,
    /// The thread has slept, and the event that woke it has not been handled.
    has_slept: bool,
    failure: Option<io::Error>,
}

/// The bell and the sleep of the server that the drive's loop uses.
struct ServerSource(Rc<RefCell<ServerInLoop>>);
struct ServerSleeper(Rc<RefCell<ServerInLoop>>);

/// Serves with `drive` in its loop until the drive ends: its power is gone, or the server is done.
pub(super) fn run(server: Server, drive: DriveLoop) -> io::Result<Server> {
    let waker = server.sockets.waker.clone();
    let door = Rc::new(RefCell::new(ServerInLoop { server, looks: 0, has_slept: false, failure: None }));
    drive(
        &mut [&mut ServerSource(door.clone())],
        &mut ServerSleeper(door.clone()),
        // The waker fails when the system has no memory for eight bytes; the thread then sees the work at its
        // next tick.
        Box::new(move || _ = waker.wake()),
    );
    let door = Rc::into_inner(door).expect("the loop has given its ends back").into_inner();
    match door.failure {
        Some(error) => Err(error),
        None => Ok(door.server),
    }
}

impl ServerInLoop {
    fn look(&mut self) -> Polled {
        let ServerInLoop { server, looks, .. } = self;
        server.handle.run_orders(&mut server.core);
        let under_way = server.core.subsystem.poll();
        if server.core.subsystem.is_starting() {
            return Polled::Nothing;
        }
        server.look_at_functions();
        *looks += 1;
        let may_send = !under_way || looks.is_multiple_of(LOOKS_PER_SEND);
        let has_sent = may_send && server.deliver();
        // A host answers what was just sent no sooner than at the next look; and if the thread sleeps before that, the
        // sleep finds what has come.
        if (!under_way && !has_sent || *looks >= LOOKS_PER_POLL) && !server.is_over {
            *looks = 0;
            self.take_sockets(Duration::ZERO);
        }
        if self.server.is_over {
            // Dropping the namespace closes the drive's link.
            self.server.core.subsystem.detach_all();
            return Polled::Closed;
        }
        Polled::Nothing
    }

    fn take_sockets(&mut self, timeout: Duration) {
        self.wait(timeout);
        self.server.take_events();
    }

    fn wait(&mut self, timeout: Duration) {
        if let Err(error) = self.server.wait(timeout) {
            self.failure = Some(error);
            self.server.is_over = true;
        }
    }
}

impl Source for ServerSource {
    fn poll(&mut self, _: Ns) -> Polled {
        self.0.borrow_mut().look()
    }

    fn arm(&mut self) -> Duration {
        let server = &mut self.0.borrow_mut().server;
        if server.only_polls {
            // Its bell stays that of a thread which is awake, so that nobody wakes it by a system call.
            return Duration::ZERO;
        }
        let rest = server.rest();
        if server.ready.is_empty() && !server.is_over { rest } else { Duration::ZERO }
    }

    fn look_closely(&mut self) {
        self.0.borrow_mut().looks = LOOKS_PER_POLL - 1;
    }

    /// Sockets are read only now that the drive counts as awake: a command that arrived while it was asleep would ring
    /// for its own thread, by a system call.
    fn disarm(&mut self) {
        let ServerInLoop { server, has_slept, .. } = &mut *self.0.borrow_mut();
        server.sockets.bell.is_awake();
        if std::mem::take(has_slept) {
            server.take_events();
        }
    }
}

impl Sleeper for ServerSleeper {
    fn sleep(&mut self, timeout: Duration) {
        let mut door = self.0.borrow_mut();
        door.wait(timeout.min(TICK));
        door.has_slept = true;
    }
}
