//! [`SharedLink`]: queues and memory that the application threads of one drive share with it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use kvdrive_sim::wall::{Apart, Bell, lock};

use super::carrier::Carrier;
use super::memory::SharedMemory;
use super::queue::{CompletionSink, Filled, MOST_QUEUES, SharedQueue};
use crate::queue::ADMIN_ENTRIES;

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

/// Queues by number; 0 is the admin queue.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) queues: Vec<Option<Arc<SharedQueue>>>,
    /// Unused numbers below the end.
    free: BTreeSet<u16>,
    /// Numbers whose queue was created or deleted since the drive last looked.
    pub(super) news: Vec<u16>,
    gone: bool,
}

/// State that the application threads of one drive share with the drive.
pub struct SharedLink {
    pub(super) memory: Arc<SharedMemory>,
    pub(super) bell: Arc<Bell>,
    pub(super) filled: Arc<Filled>,
    pub(super) carrier: Carrier,
    pub(super) registry: Mutex<Registry>,
    pub(super) closed: AtomicBool,
    pub(super) cut: AtomicBool,
    /// Is the drive unpaced, on a thread of its own? Known when it begins to serve.
    pub(super) unpaced: Arc<AtomicBool>,
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
            unpaced: Arc::default(),
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
            unpaced: self.unpaced.clone(),
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

    /// Notes that the drive's thread has ended, for any reason.
    pub(super) fn mark_gone(&self) {
        let mut registry = lock(&self.registry);
        registry.gone = true;
        let queues = registry.queues.clone();
        drop(registry);
        for queue in queues.into_iter().flatten() {
            queue.sink.power_off();
        }
    }
}
