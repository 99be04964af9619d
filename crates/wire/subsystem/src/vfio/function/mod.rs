//! One PCI function: a controller of the subsystem, its registers and rings, and its client.
//!
//! | file | what |
//! |---|---|
//! | [`messages`] | requests of the client |
//! | [`registers`] | BAR 0 |
//! | [`commands`] | entries from a ring to the subsystem, completions back |
//!
//! Without a client there is no controller. When the drive loses its power the controller is gone while the client
//! stays: registers and configuration read as ones, as of a device that was pulled out, until there is power again.

mod commands;
mod messages;
mod registers;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use mio::net::UnixStream;

use super::config_space::ConfigSpace;
use super::doorbells::Doorbells;
use super::interrupts::Interrupts;
use super::memory::GuestMemory;
use super::rings::{CompletionQueue, SubmissionQueue};
use super::socket::Socket;
use crate::namespace::QueueId;
use crate::shared::{Core, Shares};
use crate::subsystem::Address;
use registers::Registers;

/// Most messages, or pieces of one that is too long, that are taken in one turn.
const TURN_MESSAGES: usize = 64;
/// A function that had a command within this time is polled without a pause.
const AT_WORK_NS: u64 = 1_000_000;

/// The client of a function: a virtual machine, or another program that has the function for itself.
struct Client {
    socket: Socket,
    /// Both have agreed on a version.
    is_agreed: bool,
    /// There may be bytes in the socket.
    is_readable: bool,
    /// It has the page of doorbells, and can ring them without a message.
    has_doorbells: bool,
    memory: GuestMemory,
    interrupts: Interrupts,
    /// The reason for which it will be disconnected.
    complaint: Option<String>,
}

/// A function: see the module.
pub struct Function {
    path: PathBuf,
    /// The name under which arbitration knows its client.
    host: String,
    reached_at: Rc<Address>,
    doorbells: Doorbells,
    config: ConfigSpace,
    registers: Registers,
    client: Option<Client>,
    shares: Option<Shares>,
    /// The admin queue of its controller in the subsystem, as long as there is one.
    admin: Option<QueueId>,
    /// By identifier; 0 is the admin queue.
    submissions: Vec<Option<SubmissionQueue>>,
    completions: Vec<Option<CompletionQueue>>,
    /// Until this time, ms, it neither fetches nor answers (an injected fault).
    silent_until_ms: Option<u64>,
    worked_at_ns: u64,
}

impl Function {
    /// A function whose socket is at `path`.
    ///
    /// # Errors
    /// The system has no memory for its doorbells.
    pub fn new(path: &Path) -> std::io::Result<Function> {
        let address = path.display().to_string();
        Ok(Function {
            path: path.to_owned(),
            host: format!("vfio-user:{address}"),
            reached_at: Rc::new(Address {
                transport: TRANSPORT_PCIE,
                family: 0,
                address,
                service: String::new(),
                is_secure: false,
            }),
            doorbells: Doorbells::new()?,
            config: ConfigSpace::default(),
            registers: Registers::default(),
            client: None,
            shares: None,
            admin: None,
            submissions: Vec::new(),
            completions: Vec::new(),
            silent_until_ms: None,
            worked_at_ns: 0,
        })
    }

    /// Where its socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does it have a client?
    pub fn has_client(&self) -> bool {
        self.client.is_some()
    }

    /// Takes its shares of memory, which it keeps.
    pub fn join(&mut self, core: &mut Core) {
        self.shares.get_or_insert_with(|| core.shares_of_function(&self.host));
    }

    /// Takes a client; there must be none.
    pub fn connect(&mut self, core: &mut Core, stream: UnixStream) {
        assert!(self.client.is_none(), "a function has one client");
        self.client = Some(Client {
            socket: Socket::new(stream),
            is_agreed: false,
            is_readable: true,
            has_doorbells: false,
            memory: GuestMemory::default(),
            interrupts: Interrupts::default(),
            complaint: None,
        });
        self.join(core);
        self.registers = Registers::default();
        self.config = ConfigSpace::default();
        self.power_on(core);
    }

    /// Gives the function a controller, if it has a client and the drive has power.
    fn power_on(&mut self, core: &mut Core) {
        if self.client.is_none() || self.admin.is_some() || core.subsystem.is_dark() {
            return;
        }
        match core.subsystem.open_function(&self.host, &self.reached_at, core.now_ms) {
            Ok(admin) => {
                self.admin = Some(admin);
                self.registers = Registers::default();
                self.config = ConfigSpace::default();
            }
            Err(status) => self.complain(&format!("no controller for it: {status}")),
        }
    }

    /// Its socket may have bytes, or room.
    pub fn note_socket(&mut self) {
        if let Some(client) = &mut self.client {
            client.is_readable = true;
        }
    }

    /// Notes the reason for which the client will be disconnected.
    fn complain(&mut self, complaint: &str) {
        if let Some(client) = &mut self.client {
            client.complaint.get_or_insert_with(|| complaint.to_owned());
        }
    }

    /// Disconnects the client: ends its controller, its mappings and its descriptors.
    pub fn disconnect(&mut self, core: &mut Core) {
        if let Some(admin) = self.admin.take() {
            core.subsystem.disconnect(admin);
        }
        self.drop_rings();
        self.silent_until_ms = None;
        self.client = None;
    }

    /// Is this a queue of this function?
    pub fn has(&self, queue: QueueId) -> bool {
        self.admin == Some(queue)
            || self.submissions.iter().flatten().any(|submission| submission.queue == queue)
    }

    /// The subsystem has ended a queue of this function. With the admin queue its controller has ended.
    pub fn close(&mut self, queue: QueueId) {
        if self.admin == Some(queue) {
            self.admin = None;
            self.drop_rings();
        } else {
            let is_meant = |submission: &SubmissionQueue| submission.queue == queue;
            self.submissions.iter_mut().for_each(|submission| _ = submission.take_if(|it| is_meant(it)));
        }
    }

    fn drop_rings(&mut self) {
        self.submissions.clear();
        self.completions.clear();
    }

    /// Takes messages and commands; `true` if there were any. A client that has to be disconnected is disconnected
    /// here, with a line in the log.
    pub fn look(&mut self, core: &mut Core) -> bool {
        if self.client.is_none() {
            return false;
        }
        self.power_on(core);
        let mut any = self.take_messages(core);
        if self.silent_until_ms.is_some_and(|until_ms| core.now_ms >= until_ms) {
            self.silent_until_ms = None;
        }
        any |= self.silent_until_ms.is_none() && self.take_commands(core);
        if any {
            self.worked_at_ns = core.now_ns;
        }
        self.interrupt();
        self.end_client(core);
        any
    }

    /// May there be work that no event of a socket announces?
    pub fn is_awaited(&self, now_ns: u64) -> Awaited {
        let rings = self.client.as_ref().is_some_and(|client| client.has_doorbells);
        if !rings || self.submissions.is_empty() {
            let waits = self.submissions.iter().flatten().any(|submission| submission.waiting.is_some());
            return if waits { Awaited::Soon } else { Awaited::No };
        }
        if now_ns.saturating_sub(self.worked_at_ns) < AT_WORK_NS { Awaited::Now } else { Awaited::Soon }
    }

    fn end_client(&mut self, core: &mut Core) {
        let Some(complaint) = self.client.as_mut().and_then(|client| client.complaint.take()) else { return };
        if !complaint.is_empty() {
            core.log.note(core.now_ms, &format!("{}: {complaint}", self.path.display()));
        }
        self.disconnect(core);
    }

    /// The controller has failed: it takes nothing more before it is reset.
    fn fail(&mut self, core: &mut Core, why: &str) {
        core.log.note(core.now_ms, &format!("{}: the controller has failed: {why}", self.path.display()));
        if let Some(admin) = self.admin {
            core.subsystem.fail_function(admin);
        }
    }

    /// Did the client take memory away that was touched? Then the controller has failed, and nothing that was read there
    /// since counts: it is asked before data are stored and before a completion is written.
    fn has_lost_memory(&mut self, core: &mut Core) -> bool {
        let is_lost = self.client.as_ref().is_some_and(|client| client.memory.has_lost_pages());
        let status = self.admin.and_then(|admin| core.subsystem.status(admin));
        if is_lost && status.is_some_and(|status| !status.fatal()) {
            self.fail(core, "its client made a file of its memory shorter");
        }
        is_lost
    }

    /// Signals interrupts for completions since the last call.
    pub fn interrupt(&mut self) {
        let Some(client) = &mut self.client else { return };
        if client.interrupts.has_vectors() {
            for ring in self.completions.iter_mut().flatten() {
                if ring.take_news()
                    && let Some(vector) = ring.vector
                {
                    client.interrupts.signal_vector(vector);
                }
            }
        } else if is_pin_up(&self.completions, &self.registers) && !self.config.is_pin_disabled() {
            client.interrupts.raise_pin();
        }
    }
}

/// When a function must be polled again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Awaited {
    /// At the next event of its socket or of the drive.
    No,
    /// After a pause.
    Soon,
    /// At once, because it is at work.
    Now,
}

/// TRTYPE of an address that is not on a network.
const TRANSPORT_PCIE: u8 = 0;

/// Is the pin up: has a completion queue that interrupts entries that the host has not taken?
fn is_pin_up(completions: &[Option<CompletionQueue>], registers: &Registers) -> bool {
    let is_up = |ring: &CompletionQueue| {
        let vector = ring.vector.filter(|vector| *vector < 32);
        vector.is_some_and(|vector| registers.masked_vectors >> vector & 1 == 0) && ring.has_unread()
    };
    completions.iter().flatten().any(is_up)
}
