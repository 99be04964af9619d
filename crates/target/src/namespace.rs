//! What takes a command with its buffer and completes it: the seam between a subsystem and what keeps pairs.
//!
//! A namespace never blocks: [`Namespace::submit`] takes a command away, [`Namespace::poll`] brings back what
//! has completed since, in any order. What a queue has of it is a session, which begins and ends with the
//! queue; commands of a session that has ended are carried out all the same and come back too.

use kvdrive_spec::identify::KvNamespace;
use kvdrive_spec::log::Health;
use kvdrive_spec::transport_fault::TransportFault;
use kvdrive_spec::{Sqe, Status};

use crate::buffer::Buffer;

/// A queue of some controller. A number that is used again belongs to another generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueId {
    /// Which of the queues that are there.
    pub index: u32,
    /// How often that number was given.
    pub generation: u32,
}

/// Whose command this is: the queue, and the transport's name for it there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tag {
    /// The queue.
    pub queue: QueueId,
    /// The transport's slot.
    pub slot: u16,
}

/// What a queue has of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session(pub u32);

/// What a namespace looks up of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// [`Namespace::identity`].
    Identity,
    /// [`Namespace::health`].
    Health,
}

/// A command that has completed.
pub struct Completion {
    /// Whose it is.
    pub tag: Tag,
    /// What it came to.
    pub status: Status,
    /// Dword 0.
    pub dw0: u32,
    /// Dword 1.
    pub dw1: u32,
    /// The buffer it came with.
    pub data: Buffer,
    /// So many of its bytes are the answer.
    pub data_bytes: usize,
    /// What is to go wrong with it.
    pub fault: Option<TransportFault>,
}

impl Completion {
    /// One that failed.
    pub fn failed(tag: Tag, status: Status, data: Buffer) -> Completion {
        Completion { tag, status, dw0: 0, dw1: 0, data, data_bytes: 0, fault: None }
    }
}

/// A namespace of the KV command set.
pub trait Namespace {
    /// What it says of itself: sizes and limits, with what was in use when somebody last looked.
    fn identity(&self) -> &KvNamespace;

    /// Begins a session for a queue of `entries`.
    fn open(&mut self, entries: u32) -> Result<Session, Status>;

    /// Ends a session: what it has begun and not sent whole is forgotten, what it has opened is closed.
    fn close(&mut self, session: Session);

    /// Takes a command. `data` has the bytes that came with it, or the room for its answer, or nothing, as the
    /// opcode says.
    fn submit(&mut self, session: Session, tag: Tag, sqe: &Sqe, data: Buffer);

    /// How it holds out, as it was when somebody last looked. What hosts have read and written is not counted
    /// in there.
    fn health(&self) -> &Health;

    /// Has its [`Namespace::identity`] or [`Namespace::health`] be as they are now. `data` comes back as it is.
    fn look(&mut self, at: Look, tag: Tag, data: Buffer);

    /// Deleting what is not there becomes an error (feature 20h), or ceases to be one.
    ///
    /// # Errors
    /// [`Status::FEATURE_NOT_CHANGEABLE`] if it cannot.
    fn set_error_on_missing_key(&mut self, on: bool) -> Result<(), Status>;

    /// Has it still to find out what it is? Then nobody may ask it anything yet.
    fn is_starting(&self) -> bool {
        false
    }

    /// Is it without power? Then it completes what it was given as failed, and nothing more comes of it.
    fn is_off(&self) -> bool {
        false
    }

    /// Appends what has completed to `done`; `true` while commands are under way.
    fn poll(&mut self, done: &mut Vec<Completion>) -> bool;
}
