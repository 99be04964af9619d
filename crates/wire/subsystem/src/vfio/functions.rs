//! All functions of a server, with the sockets that they listen at.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mio::net::UnixListener;
use mio::{Interest, Registry, Token};

use super::function::{Awaited, Function};
use crate::private;
use crate::shared::Core;
use crate::subsystem::Event;

/// Tokens of functions begin here, above those of other sockets. A function has two: an even one for its listening
/// socket, and the next one for its client.
const FIRST_TOKEN: usize = 1 << 62;
/// Interval at which doorbells in memory are polled if the function was not at work lately, and at which a command that
/// waits for memory is tried again.
const LOOK: Duration = Duration::from_millis(1);

/// A socket and its function.
struct FunctionSocket {
    listener: UnixListener,
    function: Function,
}

/// All functions: see the module.
#[derive(Default)]
pub struct Functions {
    doors: Vec<FunctionSocket>,
    registry: Option<Registry>,
    /// Clients so far.
    accepted: u64,
}

impl Functions {
    /// Makes a function with a socket at `path`, which only this user can open.
    ///
    /// # Errors
    /// Another server answers there; the error of the system.
    pub fn listen(&mut self, registry: &Registry, path: &Path) -> io::Result<()> {
        let mut listener = private::bind(path, |path| UnixListener::bind(path))?;
        let token = Token(FIRST_TOKEN + 2 * self.doors.len());
        registry.register(&mut listener, token, Interest::READABLE)?;
        self.registry = Some(registry.try_clone()?);
        self.doors.push(FunctionSocket { listener, function: Function::new(path)? });
        Ok(())
    }

    /// Takes the functions' shares of memory.
    pub fn join(&mut self, core: &mut Core) {
        self.doors.iter_mut().for_each(|door| door.function.join(core));
    }

    /// Where its sockets are.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.doors.iter().map(|door| door.function.path().to_owned())
    }

    /// Clients accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Does any function have a client?
    pub fn have_clients(&self) -> bool {
        self.doors.iter().any(|door| door.function.has_client())
    }

    /// Takes an event of a socket; `false` if the socket belongs to no function.
    pub fn note(&mut self, core: &mut Core, Token(token): Token) -> bool {
        let Some(index) = token.checked_sub(FIRST_TOKEN) else { return false };
        let Some(door) = self.doors.get_mut(index / 2) else { return false };
        if index % 2 == 0 {
            self.accept(core, index / 2);
        } else {
            door.function.note_socket();
        }
        true
    }

    /// Accepts clients. If the function has a client, others are disconnected, and so is that of another user.
    fn accept(&mut self, core: &mut Core, index: usize) {
        let (door, Some(registry)) = (&mut self.doors[index], &self.registry) else { return };
        // An error concerns one client, or there are no descriptors left: a later one tries again.
        while let Ok((mut stream, _)) = door.listener.accept() {
            if door.function.has_client() || !private::is_owner(&stream) {
                continue;
            }
            let token = Token(FIRST_TOKEN + 2 * index + 1);
            let interest = Interest::READABLE | Interest::WRITABLE;
            if registry.register(&mut stream, token, interest).is_ok() {
                self.accepted += 1;
                door.function.connect(core, stream);
            }
        }
    }

    /// Takes messages and commands of all functions; `true` if there were any.
    pub fn look(&mut self, core: &mut Core) -> bool {
        self.doors.iter_mut().fold(false, |any, door| door.function.look(core) | any)
    }

    /// Takes an event of the subsystem if it concerns a function; returns all others.
    pub fn take(&mut self, core: &mut Core, event: Event) -> Option<Event> {
        let queue = match &event {
            Event::Completed(completion) => completion.tag.queue,
            Event::Abort { by, .. } => by.tag.queue,
            Event::Close(queue) | Event::Complaint(queue, _) => *queue,
        };
        let Some(door) = self.doors.iter_mut().find(|door| door.function.has(queue)) else {
            return Some(event);
        };
        match event {
            Event::Completed(completion) => door.function.complete(core, completion),
            Event::Abort { by, queue, cid } => {
                let reach = door.function.abort(core, queue, cid);
                if let Some(by) = core.subsystem.go_on_aborting(by, reach) {
                    door.function.complete(core, by);
                }
            }
            Event::Close(queue) => door.function.close(queue),
            Event::Complaint(..) => {}
        }
        None
    }

    /// Signals interrupts for completed commands.
    pub fn interrupt(&mut self) {
        self.doors.iter_mut().for_each(|door| door.function.interrupt());
    }

    /// How long the thread may sleep, as far as functions are concerned.
    pub fn rest(&self, now_ns: u64) -> Duration {
        let awaited = self.doors.iter().map(|door| door.function.is_awaited(now_ns)).max();
        match awaited.unwrap_or(Awaited::No) {
            Awaited::No => Duration::MAX,
            Awaited::Soon => LOOK,
            Awaited::Now => Duration::ZERO,
        }
    }

    /// Ends all clients.
    pub fn end(&mut self, core: &mut Core) {
        self.doors.iter_mut().for_each(|door| door.function.disconnect(core));
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        for door in &self.doors {
            let _ = std::fs::remove_file(door.function.path());
        }
    }
}
