//! The link between threads: queue pairs and host memory that applications use from any thread, and the drive
//! from its own.
//!
//! ```text
//!   application threads                                  the drive's thread
//!   SharedQueue::submit ──► inbox ──► bell ═══════════► WallSource::poll   stamps what arrived with a model time
//!                                                          └► pump task    at that time: Link queues, firmware wakes
//!   CompletionSink::complete ◄══════ outlet of a queue ◄── Link::complete  in batches, or at the next look
//!   SharedMemory ◄═════════════════════════════════════ DMA through HostMemory
//!   Control::look, change ──► queue ─► bell ══════════► looks between two events; changes are stamped, too
//! ```
//!
//! Entries cross in batches: an inbox is a vector under a lock that is taken once per doorbell, and the drive
//! reads one counter to see whether any inbox is filled. A completion slot counts as released the moment its
//! completion is posted, so the time at which the host reads completions does not influence the drive: the
//! events of a run are a function of the stamped arrivals and of the bytes that DMA read, which is what
//! [`crate::recording`] keeps.
//!
//! An unpaced drive may do without a thread ([`serve_here`]): its bell has the ringing thread execute what is due.
//!
//! A host creates and deletes its I/O queues by commands of the admin queue. In place of a ring's address in
//! memory, rings are registered here under a number ([`SharedLink::open_rings`]): the drive finds them when
//! something arrives under that number. A network transport creates queues by a call.
//!
//! Not in this module: command identifiers, buffers per command, waiting (crate `host`, `threaded`).

mod carrier;
mod control;
mod memory;
mod server;
mod source;
mod thread;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvdrive_sim::wall::{Apart, Bell};
use kvdrive_spec::transport_fault::TransportFault;
use kvdrive_spec::{Cqe, Sqe};

use crate::pcie::ADMIN_ENTRIES;

use carrier::Carrier;
pub use carrier::{OtherThread, serve_here};
pub use control::{Control, Controlled, Outcome};
pub use memory::{SharedBuffer, SharedMemory};
pub use server::{BuildError, Built, Ended, Server, ServerConfig};
pub(crate) use source::{Began, HostAction, Ports, Stamped};
pub use thread::{DriveLoop, Serving, Wake, serve_beside, serve_thread};

/// Locks, even if another holder panicked: everything under these locks is valid between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Destination of a queue's completions. Called on the drive's thread; must not block.
pub trait CompletionSink: Send + Sync {
    /// Commands of `queue` have completed, in this order.
    fn complete(&self, queue: &SharedQueue, cqes: &[Cqe]);
    /// Announces a fault for the answer to this command, which is passed next, on a network.
    fn struck(&self, cid: u16, fault: TransportFault) {
        _ = (cid, fault);
    }
    /// The drive is gone; outstanding commands will never complete.
    fn power_off(&self);
}

/// The drive is off: its thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drive is off")]
pub struct PowerOff;

/// Why no queue pair can be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoQueue {
    /// The drive is off.
    #[error(transparent)]
    PowerOff(#[from] PowerOff),
    /// All 65536 identifiers are used.
    #[error("the drive has {} queue pairs, as many as there are identifiers; it takes no more", MOST_QUEUES)]
    NoIdentifier,
}

/// Queue pairs of a drive, the admin queue among them: identifiers 0 to 65535 (NVMe base specification).
const MOST_QUEUES: usize = 1 << 16;

/// Which queues' inboxes have entries: a bit each, so that a look takes as long as there are queues with news.
struct Filled(Box<[AtomicU64]>);

impl Default for Filled {
    fn default() -> Filled {
        Filled((0..MOST_QUEUES / 64).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Filled {
    fn note(&self, number: u16) {
        self.0[usize::from(number) / 64].fetch_or(1 << (number % 64), Ordering::Release);
    }

    /// Takes what was noted of the first `queues` queues, in their order.
    fn take(&self, queues: usize) -> impl Iterator<Item = u16> {
        self.0[..queues.div_ceil(64)].iter().zip(0..).flat_map(|(word, at)| {
            let is_empty = word.load(Ordering::Relaxed) == 0;
            let mut bits = if is_empty { 0 } else { word.swap(0, Ordering::Acquire) };
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as u16;
                bits &= bits.checked_sub(1)?;
                Some(64 * at + bit)
            })
        })
    }
}

#[derive(Default)]
struct Inbox {
    sqes: Vec<Sqe>,
    doorbells: u32,
    /// The reset comes before the first inline command among them.
    reset: bool,
}

/// A queue pair, the application's side.
pub struct SharedQueue {
    number: u16,
    entries: u32,
    /// Does the host create it by commands?
    is_by_command: bool,
    bell: Arc<Bell>,
    carrier: Carrier,
    inbox: Apart<Mutex<Inbox>>,
    filled: Arc<Filled>,
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

    /// May this thread submit here?
    ///
    /// # Errors
    /// The calls of another one carry the drive out.
    pub fn check_thread(&self) -> Result<(), OtherThread> {
        self.carrier.check()
    }

    /// Submits all of `sqes` with one doorbell and empties the vector; `quiet` of them get no completion. If
    /// the rings have no room for all that are to complete, returns `false` and submits nothing. The caller
    /// ensures room for the quiet ones: their fetching is not reported.
    ///
    /// A drive that the calls of this thread carry out ([`serve_here`]) has answered when this returns. So the
    /// caller holds no lock that its [`CompletionSink`] takes.
    #[must_use]
    pub fn submit(&self, sqes: &mut Vec<Sqe>, quiet: u32) -> bool {
        if sqes.is_empty() {
            return true;
        }
        let is_put = self.put(sqes, quiet);
        if is_put {
            self.ring();
        }
        is_put
    }

    /// Tells the drive that something was put here.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// As [`SharedQueue::submit`], and does not ring: for a caller that holds a lock, and rings after it.
    #[must_use]
    pub fn put(&self, sqes: &mut Vec<Sqe>, quiet: u32) -> bool {
        let count = sqes.len() as u32;
        let complete = count - quiet;
        let room = |outstanding: u32| Some(outstanding + complete).filter(|after| *after < self.entries);
        if self.outstanding.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err() {
            return false;
        }
        let mut inbox = lock(&self.inbox.0);
        inbox.sqes.append(sqes);
        inbox.doorbells += 1;
        drop(inbox);
        self.filled.note(self.number);
        true
    }

    /// Notes how far completions have been read. It is only counted: nothing waits for it.
    pub fn ring_completion(&self) {
        self.completion_doorbells.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the drive discard the unfinished value of this queue, which will not be sent whole, once the caller
    /// rings. Every inline command must have completed; later ones find a clean queue.
    pub fn put_reset(&self) {
        lock(&self.inbox.0).reset = true;
        self.filled.note(self.number);
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
    /// Unused numbers below the end.
    free: BTreeSet<u16>,
    /// Numbers whose queue was created or deleted since the drive last looked.
    news: Vec<u16>,
    gone: bool,
}

/// State that the application threads of one drive share with the drive.
pub struct SharedLink {
    memory: Arc<SharedMemory>,
    bell: Arc<Bell>,
    filled: Arc<Filled>,
    carrier: Carrier,
    registry: Mutex<Registry>,
    closed: AtomicBool,
    cut: AtomicBool,
}

impl SharedLink {
    /// A link whose admin queue completes to `admin`; returned with that queue.
    pub fn new(admin: Arc<dyn CompletionSink>) -> (Arc<SharedLink>, Arc<SharedQueue>) {
        let link = Arc::new(SharedLink {
            memory: Arc::default(),
            bell: Arc::default(),
            filled: Arc::default(),
            carrier: Carrier::default(),
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

    /// Creates a queue pair of `entries` slots without a command, for a network transport whose hosts use
    /// other commands for it. Queues of such a link must not be created by commands as well.
    ///
    /// Errors: the drive's thread has ended, or there are as many queue pairs as identifiers.
    pub fn create_queue(
        &self,
        entries: u32,
        sink: Arc<dyn CompletionSink>,
    ) -> Result<Arc<SharedQueue>, NoQueue> {
        self.add_queue(entries, sink, false)
    }

    /// Opens rings of `entries` slots under the lowest free identifier, for a queue pair that the host then
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

    /// Closes the rings of a queue pair that the host has deleted by commands, and frees the identifier.
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
            carrier: self.carrier.clone(),
            inbox: Apart::default(),
            filled: self.filled.clone(),
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

    /// Closes the link: the drive finishes outstanding commands and ends.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Cuts the drive's power: it stops between two events, and no outstanding command completes.
    pub fn cut_power(&self) {
        self.cut.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Notes that the drive's thread has ended, for whatever reason.
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
