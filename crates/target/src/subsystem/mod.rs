//! A subsystem: hosts, controllers, their queues, and namespaces. No sockets, no clock: a transport brings
//! queues and commands, says what time it is, and carries the answers.
//!
//! ```text
//!   transport                         subsystem                                  namespace
//!   connect ─────────────────────────► [`connect`]    a controller, a queue
//!   a command with its buffer ───────► [`Subsystem::execute`]
//!                                        properties, admin commands ─► events
//!                                        I/O commands ─────────────────────────► submit
//!   tick, poll ──────────────────────► [`Subsystem::poll`] ◄──────────────────── poll
//!   [`Subsystem::next_event`] ◄──────── answers, queues to close
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`connect`] | Connect: which controller, which queue, or why not |
//! | `controller` | one controller: properties, asynchronous events, keep-alive |
//! | [`authentication`] | DH-HMAC-CHAP: who a host is, before its queues take anything else |
//! | `options` | its name, its hosts and its limits |
//! | `admin` | the admin command set, answered from crate `admin` |
//! | `transfer` | how much data a command moves, which way, and where it says they are |
//!
//! Any command is answered: with a status if it makes no sense, and then nothing else has changed.

mod admin;
pub mod authentication;
pub mod connect;
mod controller;
mod options;
pub mod transfer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kvdrive_admin::Kind;
use kvdrive_spec::fabrics::Fabrics;
use kvdrive_spec::opcode::{self, Direction};
use kvdrive_spec::transport_fault::TransportFault;
use kvdrive_spec::{Sqe, Status, property};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::bell::Bell;
use crate::buffer::Buffer;
use crate::namespace::{Completion, Namespace, QueueId, Session, Tag};
pub(crate) use admin::NOT_OVER_NETWORKS;
use admin::Question;
pub use authentication::Host;
use authentication::{Authentication, KeyWorker};
use controller::Controller;
pub use kvdrive_admin::event::REQUESTS_MAX as ASYNC_REQUESTS_MAX;
pub use options::{OptionError, Options};

/// How long a host may take to authenticate a queue.
const AUTHENTICATION_MS: u64 = 30_000;

/// An address of this subsystem, as discovery tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// TRTYPE.
    pub transport: u8,
    /// ADRFAM.
    pub family: u8,
    /// TRADDR.
    pub address: String,
    /// TRSVCID.
    pub service: String,
    /// Hosts have to speak TLS there.
    pub is_secure: bool,
}

/// What a transport has to do next.
pub enum Event {
    /// Carry this answer to its host.
    Completed(Completion),
    /// End this queue: nothing of it is left here.
    Close(QueueId),
}

/// What was served since the beginning: counted.
#[derive(Clone, Debug)]
pub struct Served {
    /// I/O commands by opcode.
    pub io_commands: [u64; 256],
    /// Those of them that did not succeed.
    pub io_errors: u64,
    /// Admin and Fabrics commands.
    pub admin_commands: u64,
    /// Bytes that I/O commands brought.
    pub written_bytes: u64,
    /// Bytes that were returned to them.
    pub read_bytes: u64,
    /// Controllers that hosts had.
    pub controllers: u64,
    /// Queues that hosts had, admin queues among them.
    pub queues: u64,
    /// Controllers that ended because nothing was heard of their host.
    pub expired: u64,
    /// Queues that ended because their host did not authenticate, or not in time.
    pub authentication_failures: u64,
}

impl Default for Served {
    fn default() -> Served {
        Served {
            io_commands: [0; 256],
            io_errors: 0,
            admin_commands: 0,
            written_bytes: 0,
            read_bytes: 0,
            controllers: 0,
            queues: 0,
            expired: 0,
            authentication_failures: 0,
        }
    }
}

struct Queue {
    /// Index of its controller.
    controller: usize,
    /// QID; 0 is the admin queue.
    number: u16,
    entries: u32,
    sessions: Vec<(u32, Session)>,
    /// Its host has to authenticate first, and since when it has been asked to.
    locked_since_ms: Option<u64>,
    authentication: Option<Box<Authentication>>,
}

#[derive(Default)]
struct QueueSlot {
    generation: u32,
    queue: Option<Queue>,
}

/// How a command went on.
enum Step {
    /// It has succeeded.
    Done { dw0: u32, data_bytes: usize },
    /// It has succeeded, and both dwords of the completion are the answer.
    Property(u64),
    /// It waits for an asynchronous event.
    Parked,
    /// Namespaces have to look at themselves first.
    Look(Question),
    /// A namespace has to do it.
    Submit(u32, Session),
    /// It waits for a key agreement.
    AwaitKeys,
    /// It has succeeded, and its queue ends.
    Disconnect { data_bytes: usize },
}

impl Step {
    /// Success with nothing to say.
    const SUCCESS: Step = Step::Done { dw0: 0, data_bytes: 0 };
}

/// A subsystem, and the discovery subsystem beside it.
pub struct Subsystem {
    options: Options,
    namespaces: BTreeMap<u32, Box<dyn Namespace>>,
    /// Controller `n` has the identifier `n + 1`.
    controllers: Vec<Option<Controller>>,
    queues: Vec<QueueSlot>,
    free_queues: Vec<u32>,
    events: VecDeque<Event>,
    /// Commands that wait for what namespaces say of themselves.
    questions: Vec<(Tag, Question)>,
    discovery_generation: u64,
    served: Served,
    completed: Vec<Completion>,
    /// A namespace has lost its power: nobody is connected, and nobody can be, until there is another one.
    is_dark: bool,
    bell: Arc<Bell>,
    key_worker: Option<KeyWorker>,
}

/// What there is to tell of a controller that a host has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// Name of the host.
    pub host_nqn: String,
    /// CNTLID.
    pub controller: u16,
    /// It is for discovery, and has no I/O queues.
    pub is_discovery: bool,
    /// Its host has shown that it knows its secret.
    pub is_authenticated: bool,
    /// I/O queues that it has.
    pub io_queues: u32,
    /// The address of ours that it used.
    pub reached_at: Address,
    /// Time since its last command, ms.
    pub silent_ms: u64,
    /// Commands of it that failed.
    pub failures: u64,
}

impl Subsystem {
    /// A subsystem without namespaces.
    ///
    /// # Errors
    /// What of the options cannot be.
    pub fn new(options: Options) -> Result<Subsystem, OptionError> {
        options.check()?;
        Ok(Subsystem {
            options,
            namespaces: BTreeMap::new(),
            controllers: Vec::new(),
            queues: Vec::new(),
            free_queues: Vec::new(),
            events: VecDeque::new(),
            questions: Vec::new(),
            discovery_generation: 1,
            served: Served::default(),
            completed: Vec::new(),
            is_dark: false,
            bell: Arc::new(Bell::waking(|| ())),
            key_worker: None,
        })
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What it served.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// Controllers that hosts have now.
    pub fn controllers(&self) -> usize {
        self.controllers.iter().flatten().count()
    }

    /// The controllers that hosts have at `now_ms`, `most` of them from place `first` on, and the place of the next
    /// one; the first place is 0.
    pub fn hosts(&self, first: usize, most: usize, now_ms: u64) -> (Vec<HostStatus>, Option<usize>) {
        let there = self.controllers.iter().enumerate().skip(first);
        let mut there = there.filter_map(|(index, controller)| Some((index, controller.as_ref()?)));
        let portion = there
            .by_ref()
            .take(most)
            .map(|(index, controller)| HostStatus {
                host_nqn: controller.host_nqn.clone(),
                controller: index as u16 + 1,
                is_discovery: controller.kind == Kind::Discovery,
                is_authenticated: self.has_authenticated(controller.admin),
                io_queues: controller.io.iter().flatten().count() as u32,
                reached_at: (*controller.reached_at).clone(),
                silent_ms: now_ms.saturating_sub(controller.last_sign_ms),
                failures: controller.logs.errors(),
            })
            .collect();
        (portion, there.next().map(|(index, _)| index))
    }

    /// Is a namespace without power? Hosts have seen all of the subsystem vanish then, and a transport takes
    /// no connections until [`Subsystem::replace`].
    pub fn is_dark(&self) -> bool {
        self.is_dark
    }

    /// Is there a namespace of this identifier, and is it without power?
    pub fn is_off(&self, nsid: u32) -> bool {
        self.namespaces.get(&nsid).is_some_and(|namespace| namespace.is_off())
    }

    /// Puts another namespace behind an `nsid` that has one, whose power has gone.
    ///
    /// # Panics
    /// If the one there has power, or there is none.
    pub fn replace(&mut self, nsid: u32, namespace: Box<dyn Namespace>) {
        let before = self.namespaces.insert(nsid, namespace);
        assert!(before.is_some_and(|before| before.is_off()), "namespace {nsid} has power");
        self.is_dark = self.namespaces.values().any(|namespace| namespace.is_off());
    }

    /// Puts a namespace behind `nsid` and tells the hosts. Panics for an identifier that has one, and for the two
    /// that no namespace has, 0 and FFFFFFFFh.
    pub fn attach(&mut self, nsid: u32, namespace: Box<dyn Namespace>) {
        assert!(nsid != 0 && nsid != u32::MAX, "no namespace has the identifier {nsid:X}h");
        assert!(self.namespaces.insert(nsid, namespace).is_none(), "there is a namespace {nsid}");
        self.namespace_changed(nsid);
    }

    /// Tells the hosts that a namespace is another one now.
    pub fn namespace_changed(&mut self, nsid: u32) {
        for index in 0..self.controllers.len() {
            if let Some(controller) = &mut self.controllers[index] {
                controller.note_namespace(nsid);
                self.deliver_events(index);
            }
        }
    }

    /// Tells the hosts that stay connected to discovery that there is news.
    pub fn discovery_changed(&mut self) {
        self.discovery_generation += 1;
        for index in 0..self.controllers.len() {
            if let Some(controller) = &mut self.controllers[index] {
                controller.note_discovery();
                self.deliver_events(index);
            }
        }
    }

    /// Completes Asynchronous Event Requests for which there is an event.
    fn deliver_events(&mut self, index: usize) {
        let Some(controller) = &mut self.controllers[index] else { return };
        while let Some(((slot, _), dw0)) = controller.events.next_to_tell() {
            let tag = Tag { queue: controller.admin, slot };
            self.events.push_back(Event::Completed(done(tag, dw0, 0, Buffer::empty())));
        }
    }

    fn queue(&self, id: QueueId) -> Option<&Queue> {
        let slot = self.queues.get(id.index as usize)?;
        slot.queue.as_ref().filter(|_| slot.generation == id.generation)
    }

    fn queue_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        let slot = self.queues.get_mut(id.index as usize)?;
        slot.queue.as_mut().filter(|_| slot.generation == id.generation)
    }

    fn controller_of(&mut self, id: QueueId) -> Option<&mut Controller> {
        let index = self.queue(id)?.controller;
        self.controllers[index].as_mut()
    }

    fn add_queue(&mut self, queue: Queue) -> QueueId {
        self.served.queues += 1;
        let index = self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(QueueSlot::default());
            self.queues.len() as u32 - 1
        });
        let slot = &mut self.queues[index as usize];
        slot.queue = Some(queue);
        QueueId { index, generation: slot.generation }
    }

    /// Forgets a queue; returns what it was.
    fn remove_queue(&mut self, id: QueueId) -> Option<Queue> {
        self.queue(id)?;
        let slot = &mut self.queues[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let queue = slot.queue.take()?;
        self.free_queues.push(id.index);
        for (nsid, session) in &queue.sessions {
            if let Some(namespace) = self.namespaces.get_mut(nsid) {
                namespace.close(*session);
            }
        }
        Some(queue)
    }

    /// The transport lost this queue, or ended it. Without its admin queue a controller ends, and with it its
    /// I/O queues.
    pub fn disconnect(&mut self, id: QueueId) {
        let Some(queue) = self.remove_queue(id) else { return };
        if queue.number == 0 {
            self.close_io_queues(queue.controller);
            self.controllers[queue.controller] = None;
        } else if let Some(controller) = &mut self.controllers[queue.controller] {
            controller.io[usize::from(queue.number) - 1] = None;
        }
    }

    fn close_io_queues(&mut self, index: usize) {
        let Some(controller) = &mut self.controllers[index] else { return };
        let queues: Vec<QueueId> = controller.io.iter_mut().filter_map(Option::take).collect();
        for id in queues {
            self.remove_queue(id);
            self.events.push_back(Event::Close(id));
        }
    }

    /// Ends a controller and all of its queues.
    fn end_controller(&mut self, index: usize) {
        let Some(controller) = &self.controllers[index] else { return };
        let admin = controller.admin;
        self.disconnect(admin);
        self.events.push_back(Event::Close(admin));
    }

    /// Ends every controller, as at a shutdown.
    pub fn end_all(&mut self) {
        (0..self.controllers.len()).for_each(|index| self.end_controller(index));
    }

    /// Ends controllers of which nothing was heard for longer than their keep-alive timeout, and queues whose host
    /// was to authenticate and has not. `now_ms` comes
    /// from any clock that does not go back.
    pub fn tick(&mut self, now_ms: u64) {
        for index in 0..self.controllers.len() {
            if self.controllers[index].as_ref().is_some_and(|controller| controller.expired(now_ms)) {
                self.served.expired += 1;
                self.end_controller(index);
            }
        }
        let is_late = |queue: &Queue| {
            queue.locked_since_ms.is_some_and(|since_ms| now_ms > since_ms + AUTHENTICATION_MS)
        };
        for index in 0..self.queues.len() {
            let QueueSlot { generation, queue } = &self.queues[index];
            if queue.as_ref().is_some_and(is_late) {
                let id = QueueId { index: index as u32, generation: *generation };
                self.served.authentication_failures += 1;
                self.disconnect(id);
                self.events.push_back(Event::Close(id));
            }
        }
    }

    /// Takes a command of a queue, with the bytes it brought or the room for its answer.
    pub fn execute(&mut self, tag: Tag, sqe: &Sqe, mut data: Buffer, now_ms: u64) {
        let Some(queue) = self.queue(tag.queue) else { return };
        let (number, index, is_locked) = (queue.number, queue.controller, queue.locked_since_ms.is_some());
        let Some(controller) = &mut self.controllers[index] else { return };
        controller.last_sign_ms = now_ms;
        let step = if sqe.opcode == opcode::FABRICS {
            self.served.admin_commands += 1;
            self.fabrics(index, number, tag.queue, sqe, &mut data)
        } else if is_locked {
            Err(Status::AUTHENTICATION_REQUIRED)
        } else if controller.status.fatal() {
            // Its host waits for an answer until it looks at CSTS.
            return;
        } else if !controller.status.ready() {
            Err(Status::COMMAND_SEQUENCE_ERROR)
        } else if number == 0 {
            self.served.admin_commands += 1;
            self.admin(index, tag, sqe, &mut data)
        } else {
            self.served.io_commands[usize::from(sqe.opcode)] += 1;
            if opcode::direction(sqe.opcode) == Direction::ToDrive {
                self.served.written_bytes += data.len() as u64;
            }
            self.io(tag.queue, sqe.nsid.get())
        };
        match step {
            Ok(Step::Done { dw0, data_bytes }) => {
                self.events.push_back(Event::Completed(done(tag, dw0, data_bytes, data)));
            }
            Ok(Step::Property(value)) => {
                let answer = done(tag, value as u32, 0, data);
                let dw1 = (value >> 32) as u32;
                self.events.push_back(Event::Completed(Completion { dw1, ..answer }));
            }
            Ok(Step::Parked) => self.deliver_events(index),
            Ok(Step::Look(question)) => self.ask(tag, question, data),
            Ok(Step::Submit(nsid, session)) => {
                if let Some(namespace) = self.namespaces.get_mut(&nsid) {
                    namespace.submit(session, tag, sqe, data);
                }
            }
            Ok(Step::AwaitKeys) => self.await_keys(tag, data),
            Ok(Step::Disconnect { data_bytes }) => self.end_with(tag, data_bytes, data),
            Err(status) => {
                let failed = Completion::failed(tag, status, data);
                self.note_failure(number, sqe.cid.get(), &failed);
                self.events.push_back(Event::Completed(failed));
            }
        }
    }

    /// Completes a command, the last of its queue.
    fn end_with(&mut self, tag: Tag, data_bytes: usize, data: Buffer) {
        self.events.push_back(Event::Completed(done(tag, 0, data_bytes, data)));
        self.disconnect(tag.queue);
        self.events.push_back(Event::Close(tag.queue));
    }

    /// Who has this I/O command: its namespace, in a session of its queue.
    fn io(&mut self, id: QueueId, nsid: u32) -> Result<Step, Status> {
        let namespace = self.namespaces.get_mut(&nsid).ok_or(Status::INVALID_NAMESPACE)?;
        let queue = self.queues[id.index as usize].queue.as_mut().ok_or(Status::INTERNAL)?;
        let known = queue.sessions.iter().find(|(of, _)| *of == nsid);
        let session = match known {
            Some((_, session)) => *session,
            None => {
                let session = namespace.open(queue.entries)?;
                queue.sessions.push((nsid, session));
                session
            }
        };
        Ok(Step::Submit(nsid, session))
    }

    /// A Fabrics command of a queue that is connected.
    fn fabrics(
        &mut self,
        index: usize,
        number: u16,
        id: QueueId,
        sqe: &Sqe,
        data: &mut Buffer,
    ) -> Result<Step, Status> {
        let command = Fabrics::decode(sqe)?;
        match command {
            Fabrics::AuthenticationSend { bytes } => return self.authentication_send(id, bytes, data),
            Fabrics::AuthenticationReceive { bytes } => return self.authentication_receive(id, bytes, data),
            _ if self.is_locked(id) => return Err(Status::AUTHENTICATION_REQUIRED),
            _ => {}
        }
        let controller = self.controllers[index].as_mut().ok_or(Status::INTERNAL)?;
        match command {
            Fabrics::Connect(_)
            | Fabrics::AuthenticationSend { .. }
            | Fabrics::AuthenticationReceive { .. } => Err(Status::COMMAND_SEQUENCE_ERROR),
            Fabrics::Disconnect if number == 0 => Err(Status::INVALID_QUEUE_TYPE),
            Fabrics::Disconnect => Ok(Step::Disconnect { data_bytes: 0 }),
            _ if number != 0 => Err(Status::INVALID_FIELD),
            Fabrics::PropertyGet { wide, offset } => {
                let value = controller.property(&self.options, offset, wide)?;
                Ok(Step::Property(value))
            }
            Fabrics::PropertySet { wide, offset, value } => {
                if wide || offset != property::CC {
                    return Err(Status::INVALID_FIELD);
                }
                let was_enabled = controller.configuration.enable();
                controller.configure(property::Configuration::from_bits(value as u32));
                if was_enabled && !controller.configuration.enable() {
                    self.close_io_queues(index);
                }
                Ok(Step::SUCCESS)
            }
        }
    }

    /// Has a namespace still to find out what it is?
    pub fn is_starting(&self) -> bool {
        self.namespaces.values().any(|namespace| namespace.is_starting())
    }

    /// Takes its namespaces away: nobody will ask them anything any more.
    pub fn detach_all(&mut self) {
        self.namespaces.clear();
    }

    /// Takes what namespaces have completed; `true` while they have commands under way.
    pub fn poll(&mut self) -> bool {
        self.take_worked();
        let mut completed = std::mem::take(&mut self.completed);
        let mut under_way = false;
        for namespace in self.namespaces.values_mut() {
            under_way |= namespace.poll(&mut completed);
        }
        if !self.is_dark && self.namespaces.values().any(|namespace| namespace.is_off()) {
            self.is_dark = true;
            self.end_all();
        }
        for mut completion in completed.drain(..) {
            if let Some(at) = self.questions.iter().position(|(tag, _)| *tag == completion.tag) {
                let (tag, question) = self.questions.swap_remove(at);
                match self.conclude(tag, question, completion) {
                    Some(concluded) => completion = concluded,
                    None => continue,
                }
            }
            let Some(queue) = self.queue(completion.tag.queue) else { continue };
            if queue.number != 0 {
                self.served.read_bytes += completion.data_bytes as u64;
                if !completion.status.is_success() {
                    self.served.io_errors += 1;
                }
            }
            match completion.fault {
                Some(TransportFault::Fatal) => self.fail_controller(completion.tag.queue, true),
                Some(TransportFault::NotReady) => self.fail_controller(completion.tag.queue, false),
                _ => {}
            }
            self.events.push_back(Event::Completed(completion));
        }
        self.completed = completed;
        under_way
    }

    /// The controller of a queue is not ready any more, until its host enables it; `is_fatal`: it has failed.
    fn fail_controller(&mut self, queue: QueueId, is_fatal: bool) {
        if let Some(controller) = self.controller_of(queue) {
            controller.status.set_ready(false);
            controller.status.set_fatal(is_fatal);
        }
    }

    /// What the transport has to do next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Keeps a failure of a queue's command for the error log, unless it is one that hosts cause by asking.
    fn note_failure(&mut self, number: u16, cid: u16, failed: &Completion) {
        if number != 0 {
            self.served.io_errors += 1;
        }
        if let Some(controller) = self.controller_of(failed.tag.queue) {
            controller.logs.note_error(number, cid, failed.status);
        }
    }

    /// A number for this subsystem that no other has, as far as names differ; another one for each `of`.
    fn identifier(&self, of: u64) -> u128 {
        xxh3_128_with_seed(self.options.nqn.as_bytes(), of)
    }
}

/// A name for a subsystem, made from a text: the same text has the same name, others have others.
pub fn nqn_of(text: &str) -> String {
    let id = admin::as_uuid(xxh3_128_with_seed(text.as_bytes(), 0).to_be_bytes());
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (time, rest) = digits.split_at(8);
    let [a, b, c] = [0, 4, 8].map(|at| &rest[at..at + 4]);
    format!("nqn.2014-08.org.nvmexpress:uuid:{time}-{a}-{b}-{c}-{}", &rest[12..])
}

fn done(tag: Tag, dw0: u32, data_bytes: usize, data: Buffer) -> Completion {
    Completion { tag, status: Status::SUCCESS, dw0, dw1: 0, data, data_bytes, fault: None }
}
