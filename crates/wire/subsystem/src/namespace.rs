//! The boundary between a subsystem and what holds pairs or blocks: a served namespace takes a command with its buffer
//! and completes it. (What a *device* knows of its namespace is crate `device`'s trait.)
//!
//! A namespace never blocks: [`ServedNamespace::submit`] takes a command, [`ServedNamespace::poll`] returns the commands
//! that have completed since, in any order. The state of a queue in a namespace is a session, which begins
//! and ends with the queue. Commands of a session that has ended are still carried out and returned.

use kvdrive_nvme::identify::{CSI_KV, CSI_NVM, KvNamespace};
use kvdrive_nvme::log::Health;
use kvdrive_nvme::nvm::{BLOCK_BYTES, NvmNamespace};
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use crate::buffer::Buffer;

/// A queue of a controller. When a number is used again, the generation differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueId {
    /// Index among the present queues.
    pub index: u32,
    /// How often that index was given.
    pub generation: u32,
}

/// The origin of a command: its queue, and the transport's slot there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tag {
    /// The queue.
    pub queue: QueueId,
    /// The transport's slot.
    pub slot: u16,
}

/// A queue's session in a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session(pub u32);

/// A report that a namespace can refresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refreshable {
    /// [`ServedNamespace::identity`].
    Identity,
    /// [`ServedNamespace::health`].
    Health,
}

/// A command that has completed.
pub struct Completion {
    /// The origin of the command.
    pub tag: Tag,
    /// Its status.
    pub status: Status,
    /// Dword 0.
    pub dw0: u32,
    /// Dword 1.
    pub dw1: u32,
    /// The buffer that was submitted with it.
    pub data: Buffer,
    /// How many bytes of the buffer are the answer.
    pub data_bytes: usize,
    /// A fault to inject into its answer.
    pub fault: Option<TransportFault>,
}

impl Completion {
    /// The completion of a command that failed.
    pub fn failed(tag: Tag, status: Status, data: Buffer) -> Completion {
        Completion { tag, status, dw0: 0, dw1: 0, data, data_bytes: 0, fault: None }
    }
}

/// Identify data of a namespace, by its command set.
#[derive(Clone, Copy)]
pub enum Identity {
    /// The KV command set.
    Pairs(KvNamespace),
    /// The NVM command set.
    Blocks(NvmNamespace),
}

impl Identity {
    /// That of a namespace that has not told yet.
    ///
    /// # Panics
    /// There is no such command set.
    pub fn unknown(command_set: u8) -> Identity {
        match command_set {
            CSI_KV => Identity::Pairs(KvNamespace::new_zeroed()),
            CSI_NVM => Identity::Blocks(NvmNamespace::new_zeroed()),
            csi => panic!("namespaces are of pairs or blocks, not of command set {csi}"),
        }
    }

    /// CSI of the command set.
    pub fn command_set(&self) -> u8 {
        match self {
            Identity::Pairs(_) => CSI_KV,
            Identity::Blocks(_) => CSI_NVM,
        }
    }

    /// The bytes of the structure.
    pub fn page(&mut self) -> &mut [u8] {
        match self {
            Identity::Pairs(pairs) => pairs.as_mut_bytes(),
            Identity::Blocks(blocks) => blocks.as_mut_bytes(),
        }
    }

    /// Size of the namespace, bytes; 0: it has not told yet.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Identity::Pairs(pairs) => pairs.size_bytes.get(),
            Identity::Blocks(blocks) => blocks.size_blocks.get() * u64::from(BLOCK_BYTES),
        }
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        match self {
            Identity::Pairs(pairs) => pairs.used_bytes.get(),
            Identity::Blocks(blocks) => blocks.used_blocks.get() * u64::from(BLOCK_BYTES),
        }
    }

    /// NSATTR.
    pub fn attributes(&self) -> u8 {
        match self {
            Identity::Pairs(pairs) => pairs.attributes,
            // CNS 08h tells of blocks that are write protected; this drive's are not.
            Identity::Blocks(_) => 0,
        }
    }
}

/// A namespace, as a subsystem has it.
pub trait ServedNamespace {
    /// Sizes and limits, with the usage as of the last [`ServedNamespace::look`].
    fn identity(&self) -> &Identity;

    /// Begins a session for a queue of `entries`.
    fn open(&mut self, entries: u32) -> Result<Session, Status>;

    /// Ends a session: drops values that it sent in part, and closes the iterators that it opened.
    fn close(&mut self, session: Session);

    /// Takes a command. As the opcode requires, `data` holds the bytes that came with it, or the room for its
    /// answer, or nothing.
    fn submit(&mut self, session: Session, tag: Tag, sqe: &Sqe, data: Buffer);

    /// Takes back the session's command with this tag if it has not begun; it completes with
    /// [`Status::ABORT_REQUESTED`] then. Returns `by`, the completion of the Abort, with dword 0 = 1 ("not aborted"), or
    /// nothing if [`ServedNamespace::poll`] returns it later.
    fn abort(&mut self, _session: Session, _tag: Tag, by: Completion) -> Option<Completion> {
        Some(by)
    }

    /// Health as of the last [`ServedNamespace::look`], without counts of the bytes that hosts have read and written.
    fn health(&self) -> &Health;

    /// Refreshes [`ServedNamespace::identity`] or [`ServedNamespace::health`]. `data` is returned unchanged.
    fn look(&mut self, at: Refreshable, tag: Tag, data: Buffer);

    /// Takes an admin command that only the namespace can answer: about features and log pages that it keeps itself.
    /// `data` is the room for the answer.
    fn admin(&mut self, tag: Tag, sqe: &Sqe, data: Buffer);

    /// Erases the namespace for somebody who is no host; [`ServedNamespace::take_formatted`] has the result.
    fn format(&mut self) {}

    /// The result of [`ServedNamespace::format`], once.
    fn take_formatted(&mut self) -> Option<Status> {
        Some(Status::INVALID_OPCODE)
    }

    /// How many commands it executes at the same time; further ones wait.
    fn side_by_side(&self) -> u32 {
        1
    }

    /// Is the identity still unknown? Then no command may be submitted yet.
    fn is_starting(&self) -> bool {
        false
    }

    /// Has it lost power? Then it completes the commands it holds as failed, and does nothing more.
    fn is_off(&self) -> bool {
        false
    }

    /// Critical warnings of [`ServedNamespace::health`] that began since the last call.
    fn take_warnings(&mut self) -> u8 {
        0
    }

    /// Returns memory to the system that was not needed since the last call.
    fn trim(&mut self) {}

    /// Appends completions to `done`; `true` while commands are in progress.
    fn poll(&mut self, done: &mut Vec<Completion>) -> bool;
}
