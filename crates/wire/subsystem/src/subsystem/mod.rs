//! A subsystem: hosts, controllers, their queues, and namespaces. No sockets, no clock: a transport delivers queues and
//! commands, provides the time, and carries the answers.
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
//! | `arbitration` | turns of hosts: which commands are given to namespaces at a time |
//! | `function` | controllers that hosts reach as PCI functions: registers, queues by command |
//! | `controller` | one controller: properties, asynchronous events, keep-alive |
//! | [`authentication`] | DH-HMAC-CHAP: proves the identity of a host before its queues take anything else |
//! | `keys` | key agreements for `authentication`: their order, and the thread that computes them |
//! | `notices` | asynchronous events for hosts, and entries of the log |
//! | `served` | counts of what was served, and the controllers that hosts have |
//! | `address` | where hosts reach it |
//! | `nqn` | names derived from a text |
//! | `step`, `queue` | what comes of a command; a queue and its place |
//! | `options` | name, hosts and limits of the subsystem |
//! | `admin` | the admin command set, answered from crate `admin` |
//! | `transfer` | how many bytes a command moves, in which direction, and where its descriptor puts them |
//!
//! Every command gets an answer. An invalid command gets an error status and changes nothing.

mod abort;
mod address;
mod admin;
mod arbitration;
pub mod authentication;
mod check;
pub mod connect;
mod controller;
mod function;
mod keys;
mod notices;
mod nqn;
mod options;
mod queue;
mod served;
mod step;
pub mod transfer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use kvdrive_nvme::fabrics::Fabrics;
use kvdrive_nvme::identify::CSI_KV;
use kvdrive_nvme::opcode::{self, Direction};
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Sqe, Status, property};
use kvdrive_sim::wall::Bell;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, ServedNamespace, Tag};
use abort::NOT_ABORTED;
pub use abort::Reach;
pub use address::Address;
pub use admin::NOT_OVER_NETWORKS;
use arbitration::{Arbiter, Held};
pub use authentication::Host;
use controller::Controller;
use keys::Keys;
pub use kvdrive_admin::event::REQUESTS_MAX as ASYNC_REQUESTS_MAX;
pub use nqn::{NQN_OF_UUID, nqn_of};
pub use options::{OptionError, Options, is_nqn};
use queue::{Queue, QueueSlot};
pub use served::{HostStatus, OPCODE_PLACES, OPCODES, Served, opcode_place};
pub use step::Event;
use step::{PendingPage, Step, done};

/// Limit for a host to authenticate a queue, ms.
const AUTHENTICATION_MS: u64 = 30_000;

/// An NVM subsystem and its discovery subsystem.
pub struct Subsystem {
    options: Options,
    namespaces: BTreeMap<u32, Box<dyn ServedNamespace>>,
    /// Controller `n` has CNTLID `n + 1`.
    controllers: Vec<Option<Controller>>,
    queues: Vec<QueueSlot>,
    free_queues: Vec<u32>,
    arbiter: Arbiter,
    events: VecDeque<Event>,
    /// Commands that wait for the reports of namespaces about themselves.
    pending_pages: Vec<(Tag, PendingPage)>,
    served: Served,
    completed: Vec<Completion>,
    /// Answers that are late by an injected fault, and when they are due, ms.
    late: Vec<(u64, Completion)>,
    /// Namespaces that have lost their power, and whose hosts were disconnected for it.
    dark: BTreeSet<u32>,
    bell: Arc<Bell>,
    keys: Keys,
    /// Time of the last command or tick, ms.
    now_ms: u64,
}

impl Subsystem {
    /// A subsystem without namespaces.
    ///
    /// # Errors
    /// The first option that is not allowed.
    pub fn new(options: Options) -> Result<Subsystem, OptionError> {
        options.check()?;
        Ok(Subsystem {
            options,
            namespaces: BTreeMap::new(),
            controllers: Vec::new(),
            queues: Vec::new(),
            free_queues: Vec::new(),
            arbiter: Arbiter::default(),
            events: VecDeque::new(),
            pending_pages: Vec::new(),
            served: Served::default(),
            completed: Vec::new(),
            late: Vec::new(),
            dark: BTreeSet::new(),
            bell: Arc::new(Bell::waking(|| ())),
            keys: Keys::new(),
            now_ms: 0,
        })
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What the subsystem has served.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// Number of controllers that hosts have now.
    pub fn controllers(&self) -> usize {
        self.controllers.iter().flatten().count()
    }

    /// Are all namespaces without power? Hosts then see the whole subsystem vanish, and a transport accepts no connections
    /// until [`Subsystem::replace`].
    pub fn is_dark(&self) -> bool {
        !self.namespaces.is_empty() && self.dark.len() == self.namespaces.len()
    }

    /// Has this namespace lost its power, and are the hosts that used it disconnected?
    pub fn is_dark_at(&self, nsid: u32) -> bool {
        self.dark.contains(&nsid)
    }

    /// Does a namespace with this identifier exist, and is it without power?
    pub fn is_off(&self, nsid: u32) -> bool {
        self.namespaces.get(&nsid).is_some_and(|namespace| namespace.is_off())
    }

    /// Replaces the namespace `nsid`, which has lost its power.
    ///
    /// # Panics
    /// If there is no such namespace, or it has power.
    pub fn replace(&mut self, nsid: u32, namespace: Box<dyn ServedNamespace>) {
        // Hosts see the power go even if it comes back at once.
        self.note_power();
        let before = self.namespaces.insert(nsid, namespace);
        let mut before =
            before.filter(|before| before.is_off()).unwrap_or_else(|| panic!("namespace {nsid} has power"));
        // Commands in the old namespace count as under way until they are returned.
        before.poll(&mut self.completed);
        self.dark.remove(&nsid);
        self.note_namespaces();
    }

    /// Attaches a namespace as `nsid` and notifies the hosts. Panics if `nsid` is taken, or is 0 or
    /// FFFFFFFFh.
    pub fn attach(&mut self, nsid: u32, namespace: Box<dyn ServedNamespace>) {
        assert!(nsid != 0 && nsid != u32::MAX, "no namespace has the identifier {nsid:X}h");
        assert!(self.namespaces.insert(nsid, namespace).is_none(), "there is a namespace {nsid}");
        self.note_namespaces();
        self.namespace_changed(nsid);
    }

    fn queue(&self, id: QueueId) -> Option<&Queue> {
        let slot = self.queues.get(id.index as usize)?;
        slot.queue.as_ref().filter(|_| slot.generation == id.generation)
    }

    fn queue_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        let slot = self.queues.get_mut(id.index as usize)?;
        slot.queue.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// The name of a queue's host.
    pub fn host_of(&self, id: QueueId) -> Option<&str> {
        let index = self.queue(id)?.controller;
        Some(&self.controllers[index].as_ref()?.host_nqn)
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
        let host = self.controllers[queue.controller].as_ref().filter(|_| queue.number != 0);
        let host = host.map(|controller| self.arbiter.join(&controller.host_nqn));
        let slot = &mut self.queues[index as usize];
        slot.queue = Some(queue);
        slot.host = host;
        QueueId { index, generation: slot.generation }
    }

    /// Removes a queue and returns it.
    fn remove_queue(&mut self, id: QueueId) -> Option<Queue> {
        self.queue(id)?;
        let slot = &mut self.queues[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let queue = slot.queue.take()?;
        if let Some(host) = slot.host {
            self.arbiter.forget(host, id);
        }
        self.free_place(id.index);
        for (nsid, session) in &queue.sessions {
            if let Some(namespace) = self.namespaces.get_mut(nsid) {
                namespace.close(*session);
            }
        }
        Some(queue)
    }

    /// The transport lost or closed this queue. When the admin queue ends, its controller and all I/O queues
    /// of it end.
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

    /// Ends every controller, as a shutdown does.
    pub fn end_all(&mut self) {
        (0..self.controllers.len()).for_each(|index| self.end_controller(index));
    }

    /// Ends controllers that were silent for longer than their keep-alive timeout, and queues whose host did
    /// not authenticate in time. `now_ms` comes from any clock that does not go back.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.keys.forget_old(now_ms);
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
            let QueueSlot { generation, queue, .. } = &self.queues[index];
            if queue.as_ref().is_some_and(is_late) {
                let id = QueueId { index: index as u32, generation: *generation };
                self.note_unauthenticated(id, "it took too long");
                self.disconnect(id);
                self.events.push_back(Event::Close(id));
            }
        }
    }

    /// The place of [`OPCODES`] at which an I/O command is counted.
    pub fn counted_at(&self, opcode: u8, nsid: u32) -> u16 {
        let namespace = self.namespaces.get(&nsid);
        opcode_place(opcode, namespace.map_or(CSI_KV, |namespace| namespace.identity().command_set()))
    }

    /// Runs a command of a queue. `data` holds the bytes that came with it, or the room for its answer.
    pub fn execute(&mut self, tag: Tag, sqe: &Sqe, data: Buffer, now_ms: u64) {
        self.execute_part(tag, sqe, Some(sqe.opcode), data, now_ms);
    }

    /// As [`Subsystem::execute`], for an entry that may be one of several entries of one host command. The first of
    /// them passes the opcode of that command as `begun`, by which the command is counted.
    pub fn execute_part(&mut self, tag: Tag, sqe: &Sqe, begun: Option<u8>, mut data: Buffer, now_ms: u64) {
        let Some(queue) = self.queue(tag.queue) else { return };
        let (number, index, is_locked) = (queue.number, queue.controller, queue.locked_since_ms.is_some());
        let Some(controller) = &mut self.controllers[index] else { return };
        controller.last_sign_ms = now_ms;
        self.now_ms = now_ms;
        let step = if sqe.opcode == opcode::FABRICS {
            self.served.admin_commands += 1;
            self.fabrics(index, number, tag.queue, sqe, &mut data)
        } else if is_locked {
            Err(Status::AUTHENTICATION_REQUIRED)
        } else if controller.status.fatal() {
            // The host waits for an answer until it reads CSTS.
            return;
        } else if !controller.status.ready() {
            Err(Status::COMMAND_SEQUENCE_ERROR)
        } else if number == 0 {
            self.served.admin_commands += 1;
            self.admin(index, tag, sqe, &mut data)
        } else {
            if let Some(opcode) = begun {
                let place = self.counted_at(opcode, sqe.nsid.get());
                self.served.io_commands[usize::from(place)] += 1;
            }
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
            Ok(Step::Refresh(pending)) => self.ask(tag, pending, data),
            Ok(Step::Submit(nsid, session)) => {
                self.wait_turn(Held { nsid, session, tag, sqe: *sqe, data });
            }
            Ok(Step::Abort { queue, cid }) => {
                self.events.push_back(Event::Abort { by: done(tag, NOT_ABORTED, 0, data), queue, cid });
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

    /// Completes the last command of a queue.
    fn end_with(&mut self, tag: Tag, data_bytes: usize, data: Buffer) {
        self.events.push_back(Event::Completed(done(tag, 0, data_bytes, data)));
        self.disconnect(tag.queue);
        self.events.push_back(Event::Close(tag.queue));
    }

    /// The namespace that runs this I/O command, in the session of its queue.
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

    /// A Fabrics command on a connected queue.
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

    /// When a namespace has lost its power, ends the controllers of hosts that have used it; when all have, those of all
    /// hosts.
    fn note_power(&mut self) {
        let off = self.namespaces.iter().filter(|(_, namespace)| namespace.is_off());
        let off: Vec<u32> = off.map(|(nsid, _)| *nsid).filter(|nsid| !self.dark.contains(nsid)).collect();
        for nsid in off {
            self.dark.insert(nsid);
            if self.is_dark() {
                return self.end_all();
            }
            for index in 0..self.controllers.len() {
                if self.uses(index, nsid) {
                    self.end_controller(index);
                }
            }
        }
    }

    /// Has the host of this controller sent commands to the namespace?
    fn uses(&self, controller: usize, nsid: u32) -> bool {
        let queues =
            self.controllers[controller].iter().flat_map(|controller| controller.io.iter().flatten());
        let mut queues = queues.filter_map(|id| self.queue(*id));
        queues.any(|queue| queue.sessions.iter().any(|(of, _)| *of == nsid))
    }

    /// Does a namespace still have to report its identity?
    pub fn is_starting(&self) -> bool {
        self.namespaces.values().any(|namespace| namespace.is_starting())
    }

    /// Returns memory to the system that was not needed since the last call.
    pub fn trim(&mut self) {
        self.namespaces.values_mut().for_each(|namespace| namespace.trim());
    }

    /// Begins to erase a namespace; [`Subsystem::take_formatted`] has the result.
    pub fn format(&mut self, nsid: u32) {
        if let Some(namespace) = self.namespaces.get_mut(&nsid) {
            namespace.format();
        }
    }

    /// The result of [`Subsystem::format`], once; there has to be such a namespace.
    pub fn take_formatted(&mut self, nsid: u32) -> Option<Status> {
        self.namespaces.get_mut(&nsid).map_or(Some(Status::INVALID_NAMESPACE), |it| it.take_formatted())
    }

    /// Removes all namespaces; they get no commands any more.
    pub fn detach_all(&mut self) {
        self.namespaces.clear();
    }

    /// Collects completions of the namespaces, and gives namespaces the commands whose turn has come; `true` while
    /// they have commands in progress.
    pub fn poll(&mut self) -> bool {
        self.take_worked();
        let mut completed = std::mem::take(&mut self.completed);
        let mut under_way = false;
        for namespace in self.namespaces.values_mut() {
            under_way |= namespace.poll(&mut completed);
        }
        self.tell_warnings();
        self.note_power();
        let now_ms = self.now_ms;
        let due = self.late.extract_if(.., |(due_ms, _)| *due_ms <= now_ms);
        let due: Vec<Completion> = due.map(|(_, completion)| completion).collect();
        for mut completion in completed.drain(..).chain(due) {
            if let Some(TransportFault::Late { ms }) = completion.fault {
                completion.fault = None;
                // The present millisecond has begun already.
                self.late.push((now_ms.saturating_add(ms).saturating_add(1), completion));
                continue;
            }
            self.note_done(&completion);
            if let Some(at) = self.pending_pages.iter().position(|(tag, _)| *tag == completion.tag) {
                let (tag, pending) = self.pending_pages.swap_remove(at);
                match self.conclude(tag, pending, completion) {
                    Some(concluded) => completion = concluded,
                    None => continue,
                }
            }
            let Some(queue) = self.queue(completion.tag.queue) else { continue };
            if queue.number != 0 {
                self.served.read_bytes += completion.data_bytes as u64;
                self.served.note_end(completion.status);
            }
            match completion.fault {
                Some(TransportFault::Fatal) => self.fail_controller(completion.tag.queue, true),
                Some(TransportFault::NotReady) => self.fail_controller(completion.tag.queue, false),
                _ => {}
            }
            self.events.push_back(Event::Completed(completion));
        }
        self.completed = completed;
        under_way | self.give_turns()
    }

    /// Makes the controller of a queue not ready until its host enables it again; `is_fatal`: it has failed.
    fn fail_controller(&mut self, queue: QueueId, is_fatal: bool) {
        if let Some(controller) = self.controller_of(queue) {
            controller.status.set_ready(false);
            controller.status.set_fatal(is_fatal);
        }
    }

    /// The next work for the transport.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// An identifier derived from the name of the subsystem; each `of` gives a different one.
    fn identifier(&self, of: u64) -> u128 {
        xxh3_128_with_seed(self.options.nqn.as_bytes(), of)
    }
}
