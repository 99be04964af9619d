//! A namespace that is a drive, of pairs or of blocks: the thread it runs on, and commands to it over `kvdrive_link::shared`.
//!
//! An entry goes to the drive as the host made it, except for the fields that belong to its transport: identifier,
//! namespace and data pointer. So the drive answers Store, Retrieve, List, Delete, Exist and the vendor commands as it
//! does on any other transport. What a network cannot carry is refused here: windows, entries that are value bytes, PRP
//! pages with a tail, and completions left out.
//!
//! ```text
//!   submit ─► a slot of the session's queue ─► SharedQueue ═══ the drive's thread, or its part of ours
//!   poll  ◄── slot, answer copied out       ◄── inbox, bell ◄═╝
//! ```
//!
//! Queues of the drive outlive sessions. When a session has ended, its commands are back, its unfinished value is
//! discarded and its iterators are closed, its queue is used for a later session.

mod inbox;
mod queue;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kvdrive_content::{Piece, Region};
use kvdrive_link::HostMemory;
use kvdrive_link::shared::{
    BuildError, Built, Controlled, DriveLoop, RunEnd, ServerConfig, Serving, SharedBuffer, SharedLink,
    serve_beside, serve_thread,
};
use kvdrive_nvme::identify::{CSI_KV, IDENTIFY_BYTES, cns};
use kvdrive_nvme::log::{Health, LogRequest, lid};
use kvdrive_nvme::opcode::{self, Direction};
use kvdrive_nvme::{ALL_STREAMS, Command, Cqe, DRIVE_NSID, SglDescriptor, Sqe, Status, feature};
use kvdrive_sim::Sim;
use kvdrive_sim::wall::{Bell, lock};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromZeros, IntoBytes};

use crate::buffer::Buffer;
use crate::namespace::{Completion, Identity, Refreshable, ServedNamespace, Session, Tag};
use crate::subsystem::NOT_OVER_NETWORKS;
use crate::subsystem::transfer::WHOLE_MAX_BYTES;
use inbox::{Inbox, Outlet};
use queue::{Queue, Recipient, RingSlot, note_iterator};

/// Bit 2 of an entry's flags: no completion.
const QUIET: u8 = 1 << 2;
/// Buffers of the drive that have grown beyond this are not kept at this size.
const KEPT_BYTES: u32 = 256 << 10;
/// Pause between two polls for the Identify data of a drive that was switched on.
const LOOK: Duration = Duration::from_micros(200);

/// Work for the drive's admin queue.
enum AdminWork {
    Look(Refreshable),
    Command(Sqe),
}

/// The commands of a drive.
#[derive(Clone, Copy, Debug)]
pub struct Commands {
    /// Most bytes that one moves.
    pub transfer_max_bytes: u32,
    /// CSI of their command set: that of pairs or that of blocks.
    pub command_set: u8,
}

/// Those of pairs.
impl From<u32> for Commands {
    fn from(transfer_max_bytes: u32) -> Commands {
        Commands { transfer_max_bytes, command_set: CSI_KV }
    }
}

/// Number of the admin queue in [`DriveNamespace::queues`].
const ADMIN: usize = 0;

/// A drive as a namespace. Dropping it ends the drive.
pub struct DriveNamespace {
    link: Arc<SharedLink>,
    inbox: Arc<Inbox>,
    identity: Identity,
    health: Health,
    queues: Vec<Queue>,
    idle: Vec<usize>,
    /// Size of a buffer as the drive sees it; its memory is allocated as it is written.
    buffer_bytes: u32,
    spare: Vec<Arc<SharedBuffer>>,
    /// The least number of spare buffers since the last trim.
    least_spare: usize,
    /// Commands that a host or a [`Refreshable`] waits for.
    under_way: usize,
    /// Warnings in `health` of which hosts were notified, or that are not new.
    told_warnings: u8,
    /// The result of a format, until it is asked for.
    formatted: Option<Status>,
    /// What waits for room on the admin queue.
    waiting: VecDeque<(AdminWork, Tag, Buffer)>,
    /// Commands that were refused here; reported at the next poll.
    refused: Vec<Completion>,
    taken: Vec<(u32, Cqe)>,
    entry: Vec<Sqe>,
    side_by_side: u32,
}

/// Builds a drive on a thread of its own and serves it there, for these commands.
/// `build` gets the executor and the host memory. The second part of the result controls the drive without its queues
/// ([`Serving::control`]), and waits for its end.
///
/// # Errors
/// What `build` returns; the thread has ended then.
pub fn power_on<D, R, F>(
    config: ServerConfig,
    bell: Arc<Bell>,
    commands: impl Into<Commands>,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError> + Send + 'static,
) -> Result<(DriveNamespace, Serving<D, R>), BuildError>
where
    D: Controlled,
    F: FnOnce(RunEnd) -> R + 'static,
    R: Send + 'static,
{
    let (mut namespace, link) = DriveNamespace::new(bell, commands.into());
    let serving = serve_thread(&link, config, build)?;
    while namespace.is_starting() {
        thread::sleep(LOOK);
        namespace.poll(&mut Vec::new());
    }
    Ok((namespace, serving))
}

/// As [`power_on`], in the loop of the server whose thread this is ([`Core::drive`](crate::shared::Core::drive)).
///
/// # Errors
/// What `build` returns.
pub fn power_on_beside<D, R, F>(
    config: ServerConfig,
    bell: Arc<Bell>,
    commands: impl Into<Commands>,
    build: impl FnOnce(&Sim, Rc<dyn HostMemory>) -> Result<Built<D, F>, BuildError>,
) -> Result<(DriveNamespace, Serving<D, R>, DriveLoop), BuildError>
where
    D: Controlled,
    F: FnOnce(RunEnd) -> R + 'static,
    R: Send + 'static,
{
    let (namespace, link) = DriveNamespace::new(bell, commands.into());
    let (serving, drive) = serve_beside(&link, config, build)?;
    Ok((namespace, serving, drive))
}

impl DriveNamespace {
    /// A namespace for a drive that will be powered on at the other end of the link. Sends its Identify at once.
    fn new(bell: Arc<Bell>, commands: Commands) -> (DriveNamespace, Arc<SharedLink>) {
        let Commands { transfer_max_bytes, command_set } = commands;
        let inbox = Arc::new(Inbox {
            completions: Mutex::default(),
            struck: Mutex::default(),
            is_struck: AtomicBool::new(false),
            filled: AtomicBool::new(false),
            off: AtomicBool::new(false),
            bell,
        });
        let (link, admin) = SharedLink::new(Arc::new(Outlet { number: ADMIN as u32, inbox: inbox.clone() }));
        let slots = admin.entries() - 1;
        let mut namespace = DriveNamespace {
            link: link.clone(),
            inbox,
            identity: Identity::unknown(command_set),
            health: Health::new_zeroed(),
            queues: vec![Queue::new(admin, slots)],
            idle: Vec::new(),
            buffer_bytes: transfer_max_bytes.min(WHOLE_MAX_BYTES).max(IDENTIFY_BYTES as u32),
            spare: Vec::new(),
            least_spare: 0,
            under_way: 0,
            told_warnings: 0,
            formatted: None,
            waiting: VecDeque::new(),
            refused: Vec::new(),
            taken: Vec::new(),
            entry: Vec::new(),
            side_by_side: 1,
        };
        namespace.look_at_itself(Refreshable::Identity, None);
        namespace.look_at_itself(Refreshable::Health, None);
        namespace.wait_for_warnings();
        (namespace, link)
    }

    /// Sets how many commands its drive carries out side by side; 1 if it was not set.
    pub fn set_side_by_side(&mut self, commands: u32) {
        self.side_by_side = commands.max(1);
    }

    fn is_off(&self) -> bool {
        self.inbox.off.load(Ordering::Acquire)
    }

    fn has_pairs(&self) -> bool {
        matches!(self.identity, Identity::Pairs(_))
    }

    /// Sends Identify or Get Log Page to the drive; there must be room on its admin queue.
    fn look_at_itself(&mut self, look: Refreshable, recipient: Option<(Tag, Buffer)>) {
        let (sqe, bytes) = match look {
            Refreshable::Identity => {
                let mut sqe = Sqe::new(opcode::admin::IDENTIFY, 0, DRIVE_NSID);
                let structure = match self.identity {
                    Identity::Pairs(_) => cns::CSI_NAMESPACE,
                    Identity::Blocks(_) => cns::NAMESPACE,
                };
                sqe.cdw10 = U32::new(u32::from(structure));
                sqe.cdw11 = U32::new(u32::from(self.identity.command_set()) << 24);
                (sqe, IDENTIFY_BYTES)
            }
            Refreshable::Health => {
                let mut sqe = Sqe::new(opcode::admin::GET_LOG_PAGE, 0, DRIVE_NSID);
                let bytes = size_of::<Health>();
                let (page, offset, command_set) = (lid::HEALTH, 0, self.identity.command_set());
                // Reading the page lets the drive notify of it again.
                LogRequest { page, retain_event: false, bytes: bytes as u64, offset, command_set }
                    .put(&mut sqe);
                (sqe, bytes)
            }
        };
        self.send(ADMIN, sqe, Recipient::Itself(look, recipient), bytes as u32);
    }

    /// Has the drive do this for a host as soon as there is room on its admin queue.
    fn ask(&mut self, work: AdminWork, tag: Tag, data: Buffer) {
        if self.is_off() {
            self.refused.push(Completion::failed(tag, Status::NAMESPACE_NOT_READY, data));
        } else if self.queues[ADMIN].free.is_empty() {
            self.waiting.push_back((work, tag, data));
        } else {
            self.begin(work, tag, data);
        }
    }

    fn begin(&mut self, work: AdminWork, tag: Tag, data: Buffer) {
        match work {
            AdminWork::Look(at) => self.look_at_itself(at, Some((tag, data))),
            AdminWork::Command(sqe) => {
                let bytes = data.len() as u32;
                self.send(ADMIN, sqe, Recipient::Host(tag, data), bytes);
            }
        }
    }

    /// Asks the drive to notify of new warnings: few spare blocks are left, or the drive is read-only.
    fn wait_for_warnings(&mut self) {
        let mut wants = Sqe::new(opcode::admin::SET_FEATURES, 0, 0);
        wants.cdw10 = U32::new(u32::from(feature::ASYNC_EVENTS));
        wants.cdw11 = U32::new(u32::from(Health::FEW_SPARES | Health::READ_ONLY));
        self.send(ADMIN, wants, Recipient::Cleanup, 0);
        self.send(ADMIN, Sqe::new(opcode::admin::ASYNC_EVENT_REQUEST, 0, 0), Recipient::Event, 0);
    }

    /// Sends an entry to the drive with memory for `data_bytes` bytes, which holds the bytes of the host if the command
    /// brings any.
    fn send(&mut self, number: usize, mut sqe: Sqe, mut recipient: Recipient, data_bytes: u32) {
        let memory = (data_bytes > 0).then(|| self.memory());
        self.under_way += usize::from(!matches!(recipient, Recipient::Event));
        let mut is_lent = false;
        if let Some(memory) = &memory {
            memory.clear();
            if let Recipient::Host(_, data) = &mut recipient
                && opcode::direction(sqe.opcode) == Direction::ToDrive
            {
                is_lent = data.whole_memory().is_some_and(|bytes| memory.exchange(bytes, |_| true));
                if !is_lent {
                    memory.fill(Piece::Bytes(data));
                }
            }
            let is_in_capsule = sqe.sgl().kind == SglDescriptor::DATA_BLOCK_OFFSET
                && opcode::direction(sqe.opcode) == Direction::ToDrive;
            let mut descriptor = SglDescriptor::data_block(memory.address(), data_bytes);
            if is_in_capsule {
                descriptor.kind = SglDescriptor::DATA_BLOCK_OFFSET;
            }
            sqe.set_sgl(descriptor);
        } else if opcode::direction(sqe.opcode) != Direction::None {
            // The command has no data, whatever the host wrote into the descriptor: inline commands have value bytes
            // there.
            sqe.set_sgl(SglDescriptor::data_block(0, 0));
        }
        let queue = &mut self.queues[number];
        let slot = queue.free.pop().expect("a session has no more commands than its queue has slots");
        sqe.cid = U16::new(slot);
        let iterator = sqe.cdw12.get();
        queue.slots[usize::from(slot)] =
            RingSlot { recipient, opcode: sqe.opcode, iterator, memory, is_lent };
        self.entry.push(sqe);
        let fits = queue.queue.submit(&mut self.entry, 0);
        assert!(fits, "a queue of the drive has an entry for each of its slots");
    }

    fn memory(&mut self) -> Arc<SharedBuffer> {
        let spare = self.spare.pop();
        self.least_spare = self.least_spare.min(self.spare.len());
        spare.unwrap_or_else(|| self.link.memory().map(self.buffer_bytes))
    }

    /// Completes all commands that the drive will not complete, because it has no power.
    fn fail_all(&mut self, done: &mut Vec<Completion>) {
        for queue in &mut self.queues {
            for (index, slot) in queue.slots.iter_mut().enumerate() {
                slot.give_back();
                let recipient = std::mem::replace(&mut slot.recipient, Recipient::Free);
                slot.memory = None;
                match recipient {
                    Recipient::Free => continue,
                    Recipient::Host(tag, data) | Recipient::Itself(_, Some((tag, data))) => {
                        done.push(Completion::failed(tag, Status::INTERNAL, data));
                    }
                    Recipient::Abort(by) => done.push(by),
                    Recipient::Format => self.formatted = Some(Status::INTERNAL),
                    Recipient::Itself(_, None) | Recipient::Cleanup | Recipient::Event => {}
                }
                queue.free.push(index as u16);
            }
        }
        let waiting = self.waiting.drain(..);
        done.extend(waiting.map(|(_, tag, data)| Completion::failed(tag, Status::INTERNAL, data)));
        self.under_way = 0;
    }

    /// A command of the drive has completed.
    fn take(&mut self, number: u32, cqe: &Cqe, done: &mut Vec<Completion>) {
        let number = number as usize;
        let queue = &mut self.queues[number];
        let Some(slot) = queue.slots.get_mut(usize::from(cqe.cid.get())) else { return };
        slot.give_back();
        let recipient = std::mem::replace(&mut slot.recipient, Recipient::Free);
        if matches!(recipient, Recipient::Free) {
            // The command was given up at the power cut.
            return;
        }
        let (opcode, iterator, memory) = (slot.opcode, slot.iterator, slot.memory.take());
        queue.free.push(cqe.cid.get());
        queue.queue.ring_completion();
        self.under_way -= usize::from(!matches!(recipient, Recipient::Event));
        let status = cqe.status();
        match recipient {
            Recipient::Free | Recipient::Cleanup => {}
            Recipient::Event if status.is_success() => {
                self.look_at_itself(Refreshable::Health, None);
                self.send(ADMIN, Sqe::new(opcode::admin::ASYNC_EVENT_REQUEST, 0, 0), Recipient::Event, 0);
            }
            Recipient::Event => {}
            Recipient::Format => self.formatted = Some(status),
            Recipient::Abort(by) if status.is_success() => done.push(Completion { dw0: cqe.dw0.get(), ..by }),
            Recipient::Abort(by) => done.push(by),
            Recipient::Host(tag, mut data) => {
                note_iterator(&mut queue.iterators, opcode, iterator, cqe);
                let mut data_bytes = 0;
                if let Some(memory) = &memory
                    && opcode::direction(opcode) == Direction::ToHost
                    && status.is_success()
                {
                    data_bytes = take_answer(memory, &mut data);
                }
                let (dw0, dw1) = (cqe.dw0.get(), cqe.dw1.get());
                let fault = self.inbox.take_struck(number as u32, cqe.cid.get());
                done.push(Completion { tag, status, dw0, dw1, data, data_bytes, fault });
            }
            Recipient::Itself(look, recipient) => {
                if let (Some(memory), true) = (&memory, status.is_success()) {
                    let mut page = [0; IDENTIFY_BYTES];
                    copy_answer(memory, &mut page);
                    match look {
                        Refreshable::Identity => self.identity.page().copy_from_slice(&page),
                        Refreshable::Health => {
                            let health = self.health.as_mut_bytes();
                            health.copy_from_slice(&page[..health.len()]);
                        }
                    }
                }
                if let Some((tag, data)) = recipient {
                    done.push(Completion { tag, status, dw0: 0, dw1: 0, data, data_bytes: 0, fault: None });
                }
            }
        }
        self.spare.extend(memory);
        if number != ADMIN && !self.queues[number].is_open {
            self.clean_up(number);
        }
    }

    /// Ends a session: after its last command is back, its iterators are closed and its queue is free for another
    /// session.
    fn clean_up(&mut self, number: usize) {
        let queue = &mut self.queues[number];
        if queue.under_way() > 0 || self.inbox.off.load(Ordering::Acquire) {
            return;
        }
        if std::mem::take(&mut queue.has_streams) {
            let sqe = Command::Discard { stream: ALL_STREAMS }.encode(0, DRIVE_NSID);
            self.send(number, sqe, Recipient::Cleanup, 0);
            return;
        }
        if let Some(iterator) = queue.iterators.pop() {
            let sqe = Command::IterClose { iterator }.encode(0, DRIVE_NSID);
            self.send(number, sqe, Recipient::Cleanup, 0);
            return;
        }
        // Blocks have no unfinished values, and no command that would end them.
        if self.has_pairs() {
            let queue = &self.queues[number].queue;
            queue.put_reset();
            queue.ring();
        }
        self.idle.push(number);
    }
}

/// Takes the bytes that the drive wrote, without a copy unless they are generated bytes; returns their number.
fn take_answer(memory: &SharedBuffer, to: &mut Buffer) -> usize {
    let (room, mut bytes) = (to.len(), Vec::new());
    if !memory.exchange(&mut bytes, |written| written <= room) {
        return copy_answer(memory, to);
    }
    let written = bytes.len();
    to.give(bytes);
    written
}

/// Copies the bytes that the drive wrote; returns their number.
fn copy_answer(memory: &SharedBuffer, to: &mut [u8]) -> usize {
    let mut content = Region::new();
    memory.swap(&mut content);
    let bytes = (content.written_end() as usize).min(to.len());
    content.copy_to(0, &mut to[..bytes]);
    if content.written_end() <= KEPT_BYTES {
        content.clear();
        memory.swap(&mut content);
    }
    bytes
}

impl ServedNamespace for DriveNamespace {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&mut self, entries: u32) -> Result<Session, Status> {
        if self.is_off() {
            return Err(Status::NAMESPACE_NOT_READY);
        }
        let fits = |number: &usize| self.queues[*number].slots.len() as u32 >= entries;
        if let Some(at) = self.idle.iter().position(fits) {
            let number = self.idle.swap_remove(at);
            self.queues[number].is_open = true;
            return Ok(Session(number as u32));
        }
        let slots = entries.next_power_of_two().min(1 << 16);
        let number = self.queues.len();
        let outlet = Outlet { number: number as u32, inbox: self.inbox.clone() };
        // One entry of a ring always stays empty.
        let queue = self.link.create_queue(slots + 1, Arc::new(outlet));
        let queue = queue.map_err(|_| Status::NAMESPACE_NOT_READY)?;
        self.queues.push(Queue::new(queue, slots));
        Ok(Session(number as u32))
    }

    fn close(&mut self, session: Session) {
        let number = session.0 as usize;
        self.queues[number].is_open = false;
        self.clean_up(number);
    }

    fn submit(&mut self, session: Session, tag: Tag, sqe: &Sqe, data: Buffer) {
        let number = session.0 as usize;
        let refusal = if self.is_off() {
            Some(Status::NAMESPACE_NOT_READY)
        } else if NOT_OVER_NETWORKS.contains(&sqe.opcode) {
            Some(Status::INVALID_OPCODE)
        } else if data.len() > self.buffer_bytes as usize || self.has_pairs() && names_long_key(sqe) {
            Some(Status::INVALID_FIELD)
        } else if self.queues[number].free.is_empty() {
            Some(Status::COMMAND_INTERRUPTED)
        } else {
            None
        };
        if let Some(status) = refusal {
            self.refused.push(Completion::failed(tag, status, data));
            return;
        }
        let is_part = matches!(sqe.opcode, opcode::STORE_PART | opcode::RETRIEVE_PART);
        self.queues[number].has_streams |= is_part;
        let mut sqe = *sqe;
        sqe.nsid = U32::new(DRIVE_NSID);
        sqe.flags &= !QUIET;
        let bytes = data.len() as u32;
        self.send(number, sqe, Recipient::Host(tag, data), bytes);
    }

    fn abort(&mut self, session: Session, tag: Tag, by: Completion) -> Option<Completion> {
        let queue = &self.queues[session.0 as usize];
        let is_meant = |slot: &RingSlot| matches!(slot.recipient, Recipient::Host(of, _) if of == tag);
        let slot = queue.slots.iter().position(is_meant);
        let (Some(slot), false) = (slot, self.is_off() || self.queues[ADMIN].free.is_empty()) else {
            return Some(by);
        };
        let mut sqe = Sqe::new(opcode::admin::ABORT, 0, 0);
        sqe.cdw10 = U32::new((slot as u32) << 16 | u32::from(queue.queue.id()));
        self.send(ADMIN, sqe, Recipient::Abort(by), 0);
        None
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn take_warnings(&mut self) -> u8 {
        let new = self.health.warnings & !self.told_warnings;
        self.told_warnings = self.health.warnings;
        new
    }

    fn trim(&mut self) {
        self.spare.truncate(self.spare.len() - self.least_spare);
        self.least_spare = self.spare.len();
    }

    fn look(&mut self, at: Refreshable, tag: Tag, data: Buffer) {
        self.ask(AdminWork::Look(at), tag, data);
    }

    fn admin(&mut self, tag: Tag, sqe: &Sqe, data: Buffer) {
        if data.len() > self.buffer_bytes as usize {
            self.refused.push(Completion::failed(tag, Status::INVALID_FIELD, data));
            return;
        }
        self.ask(AdminWork::Command(Sqe { nsid: U32::new(DRIVE_NSID), ..*sqe }), tag, data);
    }

    fn format(&mut self) {
        if self.is_off() || self.queues[ADMIN].free.is_empty() {
            self.formatted = Some(Status::NAMESPACE_NOT_READY);
            return;
        }
        self.send(ADMIN, Sqe::new(opcode::admin::FORMAT, 0, DRIVE_NSID), Recipient::Format, 0);
    }

    fn take_formatted(&mut self) -> Option<Status> {
        self.formatted.take()
    }

    fn side_by_side(&self) -> u32 {
        self.side_by_side
    }

    fn is_starting(&self) -> bool {
        self.identity.size_bytes() == 0 && self.under_way > 0
    }

    fn is_off(&self) -> bool {
        DriveNamespace::is_off(self)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> bool {
        done.append(&mut self.refused);
        if self.inbox.filled.swap(false, Ordering::Acquire) {
            let mut taken = std::mem::take(&mut self.taken);
            std::mem::swap(&mut *lock(&self.inbox.completions), &mut taken);
            for (number, cqe) in taken.drain(..) {
                self.take(number, &cqe, done);
            }
            self.taken = taken;
            while !self.queues[ADMIN].free.is_empty() {
                let Some((work, tag, data)) = self.waiting.pop_front() else { break };
                self.begin(work, tag, data);
            }
        }
        if self.under_way > 0 && self.is_off() {
            self.fail_all(done);
        }
        self.under_way > 0
    }
}

impl Drop for DriveNamespace {
    fn drop(&mut self) {
        // A buffer must return to its budget with its own memory.
        self.queues.iter_mut().flat_map(|queue| &mut queue.slots).for_each(RingSlot::give_back);
        self.link.close();
    }
}

/// Does the entry name a key of more than 16 bytes by its address? The drive would look for it in memory of this
/// process, not of the host.
fn names_long_key(sqe: &Sqe) -> bool {
    sqe.has_long_key()
        && Command::decode(sqe).is_ok_and(|command| command.key().is_some_and(|key| key.is_long()))
}
