//! The link between threads: queue pairs and host memory that applications reach from any thread, and the
//! drive from its own.
//!
//! ```text
//!   application threads                                  the drive's thread
//!   SharedQueue::submit ──► inbox ──► bell ═══════════► WallSource::poll   stamps what arrived with a model time
//!                                                          └► pump task    at that time: Link queues, firmware wakes
//!   CompletionSink::complete ◄══════ outlet of a queue ◄── Link::complete  in batches, or at the next look
//!   SharedMemory ◄═════════════════════════════════════ DMA through HostMemory
//!   Control::look, change ──► desk ──► bell ══════════► looks between two events; changes are stamped, too
//! ```
//!
//! Entries cross in batches: an inbox is a vector under a lock that is taken once a doorbell, and the drive
//! looks at one counter to see whether any inbox has something. A host frees its completion slots the moment
//! a completion is posted, so when it reads them has no influence on the drive: the events of a run are a
//! function of the stamped arrivals and of the bytes that DMA read, which is what [`crate::recording`] keeps.
//!
//! A host creates its I/O queues by commands of the admin queue, and deletes them so. What a ring's address
//! in memory is to a controller, rings under a number are here ([`SharedLink::open_rings`]): the drive looks
//! for them when something arrives under that number. A door makes queues by a call.
//!
//! What this module does not do: command identifiers, buffers per command, waiting (crate `host`,
//! `threaded`).

mod control;
mod memory;
mod server;
mod source;
mod thread;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvdrive_sim::wall::{Apart, Bell};
use kvdrive_spec::transport_fault::TransportFault;
use kvdrive_spec::{Cqe, Sqe};

use crate::pcie::ADMIN_ENTRIES;

pub use control::{Control, Controlled, Outcome};
pub use memory::{SharedBuffer, SharedMemory};
pub use server::{BuildError, Built, Ended, Server, ServerConfig};
pub(crate) use source::{Arrived, Began, Ports, Stamped};
pub use thread::{DriveLoop, Serving, Wake, serve_beside, serve_thread};

/// Locks, whatever happened to other holders: everything kept under these locks is valid between any two
/// statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a queue's completions go. Called on the drive's thread; must not block.
pub trait CompletionSink: Send + Sync {
    /// Commands of `queue` have completed, in this order.
    fn complete(&self, queue: &SharedQueue, cqes: &[Cqe]);
    /// The answer to this command, which comes next, is to suffer so on a network.
    fn struck(&self, cid: u16, fault: TransportFault) {
        _ = (cid, fault);
    }
    /// The drive is gone; what is under way will never complete.
    fn power_off(&self);
}

/// The drive is off: its thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drive is off")]
pub struct PowerOff;

/// Why there is no queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoQueue {
    /// There is no drive any more.
    #[error(transparent)]
    PowerOff(#[from] PowerOff),
    /// A queue identifier has 16 bits.
    #[error("the drive has {} queue pairs, as many as there are identifiers; it takes no more", MOST_QUEUES)]
    NoIdentifier,
}

/// Queue pairs of a drive, the admin queue among them: identifiers 0 to 65535 (NVMe base specification).
const MOST_QUEUES: usize = 1 << 16;

#[derive(Default)]
struct Inbox {
    sqes: Vec<Sqe>,
    doorbells: u32,
    /// Before the first of them that is inline.
    reset: bool,
}

/// A queue pair, the application's side.
pub struct SharedQueue {
    number: u16,
    entries: u32,
    /// Does the host create it by commands?
    is_by_command: bool,
    bell: Arc<Bell>,
    inbox: Apart<Mutex<Inbox>>,
    /// Is there something in the inbox?
    filled: AtomicBool,
    /// Commands submitted and not completed.
    outstanding: AtomicU32,
    /// Completion doorbells that the meter has not counted yet.
    completion_doorbells: Apart<AtomicU32>,
    sink: Arc<dyn CompletionSink>,
}

impl SharedQueue {
    /// Its identifier.
    pub fn id(&self) -> u16 {
        self.number
    }

    /// Slots of each ring; one of them always stays empty.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Submits all of `sqes` with one doorbell and empties it; `quiet` of them get no completion. `false`,
    /// and nothing is submitted, when the rings have no room for all that are to complete. Room for the quiet
    /// ones is the caller's business: nobody tells when they have been taken.
    #[must_use]
    pub fn submit(&self, sqes: &mut Vec<Sqe>, quiet: u32) -> bool {
        let count = sqes.len() as u32;
        if count == 0 {
            return true;
        }
        let complete = count - quiet;
        let room = |outstanding: u32| Some(outstanding + complete).filter(|after| *after < self.entries);
        if self.outstanding.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err() {
            return false;
        }
        let mut inbox = lock(&self.inbox.0);
        inbox.sqes.append(sqes);
        inbox.doorbells += 1;
        drop(inbox);
        self.filled.store(true, Ordering::Release);
        self.bell.ring();
        true
    }

    /// Tells the drive how far completions have been read. It is only counted: nothing waits for it.
    pub fn ring_completion(&self) {
        self.completion_doorbells.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the drive discard the value that was begun here and will not be sent whole. Every inline command
    /// must have completed; those that are submitted from now on find a clean queue.
    pub fn reset(&self) {
        lock(&self.inbox.0).reset = true;
        self.filled.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn complete(&self, cqes: &[Cqe]) {
        self.outstanding.fetch_sub(cqes.len() as u32, Ordering::Relaxed);
        self.sink.complete(self, cqes);
    }
}

/// Queues by number; 0 is the admin queue.
#[derive(Default)]
struct Registry {
    queues: Vec<Option<Arc<SharedQueue>>>,
    /// Below the end: no queue has them.
    free: BTreeSet<u16>,
    /// Whose queue has come or gone since the drive last looked.
    news: Vec<u16>,
    gone: bool,
}

/// What the threads of one drive's applications share with the drive.
pub struct SharedLink {
    memory: Arc<SharedMemory>,
    bell: Arc<Bell>,
    registry: Mutex<Registry>,
    closed: AtomicBool,
    cut: AtomicBool,
}

impl SharedLink {
    /// A link whose admin queue completes into `admin`; returns it with that queue.
    pub fn new(admin: Arc<dyn CompletionSink>) -> (Arc<SharedLink>, Arc<SharedQueue>) {
        let link = Arc::new(SharedLink {
            memory: Arc::default(),
            bell: Arc::default(),
            registry: Mutex::default(),
            closed: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        });
        let queue = link.create_queue(ADMIN_ENTRIES, admin).expect("a new link has not ended");
        (link, queue)
    }

    /// Memory that the drive reaches by DMA.
    pub fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// Creates a queue pair of `entries` slots without a command, for a door whose hosts have other commands
    /// for that. Nobody may create queues of this link by commands beside it.
    ///
    /// Errors: the drive's thread has ended, or there are as many queue pairs as identifiers.
    pub fn create_queue(
        &self,
        entries: u32,
        sink: Arc<dyn CompletionSink>,
    ) -> Result<Arc<SharedQueue>, NoQueue> {
        self.add_queue(entries, sink, false)
    }

    /// Rings of `entries` slots under the lowest identifier that is free, for a queue pair that the host then
    /// creates by commands; nothing may be submitted before those have succeeded.
    ///
    /// Errors: as [`SharedLink::create_queue`].
    pub fn open_rings(
        &self,
        entries: u32,
        sink: Arc<dyn CompletionSink>,
    ) -> Result<Arc<SharedQueue>, NoQueue> {
        self.add_queue(entries, sink, true)
    }

    /// Gives the rings and the identifier of a queue pair up that the host has deleted by commands.
    pub fn close_rings(&self, queue: &SharedQueue) {
        let mut registry = lock(&self.registry);
        assert!(queue.is_by_command, "others are never deleted");
        registry.queues[usize::from(queue.number)] = None;
        registry.free.insert(queue.number);
        registry.news.push(queue.number);
    }

    fn add_queue(
        &self,
        entries: u32,
        sink: Arc<dyn CompletionSink>,
        is_by_command: bool,
    ) -> Result<Arc<SharedQueue>, NoQueue> {
        let mut registry = lock(&self.registry);
        if registry.gone {
            return Err(NoQueue::PowerOff(PowerOff));
        }
        let number = match registry.free.pop_first() {
            Some(number) => number,
            None if registry.queues.len() >= MOST_QUEUES => return Err(NoQueue::NoIdentifier),
            None => {
                registry.queues.push(None);
                (registry.queues.len() - 1) as u16
            }
        };
        let queue = Arc::new(SharedQueue {
            number,
            entries,
            is_by_command,
            bell: self.bell.clone(),
            inbox: Apart::default(),
            filled: AtomicBool::new(false),
            outstanding: AtomicU32::new(0),
            completion_doorbells: Apart::default(),
            sink,
        });
        registry.queues[usize::from(number)] = Some(queue.clone());
        registry.news.push(number);
        drop(registry);
        self.bell.ring();
        Ok(queue)
    }

    /// Nobody will submit again: the drive finishes what is under way and ends.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Cuts the drive's power: it stops between two events, and nothing under way completes.
    pub fn cut_power(&self) {
        self.cut.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// The drive's thread ends, however it came to that.
    fn mark_gone(&self) {
        let mut registry = lock(&self.registry);
        registry.gone = true;
        let queues = registry.queues.clone();
        drop(registry);
        for queue in queues.into_iter().flatten() {
            queue.sink.power_off();
        }
    }
}
