//! [`SharedQueue`]: a queue pair, the application's side.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Cqe, Sqe};
use kvdrive_sim::wall::{Apart, Bell, lock};

use super::carrier::{Carrier, OtherThread};

/// Destination of a queue's completions. Called on the drive's thread; must not block.
pub trait CompletionSink: Send + Sync {
    /// Commands of `queue` have completed, in this order.
    fn complete(&self, queue: &SharedQueue, cqes: &[Cqe]);
    /// Announces a fault for the answer to this command, which is passed next, on a network.
    fn struck(&self, cid: u16, fault: TransportFault) {
        _ = (cid, fault);
    }
    /// May completions of many commands under way wait for each other while the drive has more to do? For a host that
    /// sleeps until they come, since waking it costs more than a command.
    fn gathers(&self) -> bool {
        false
    }
    /// The drive is gone; outstanding commands will never complete.
    fn power_off(&self);
}

/// Queue pairs of a drive, the admin queue among them: identifiers 0 to 65535 (NVMe base specification).
pub(super) const MOST_QUEUES: usize = 1 << 16;

/// Which queues' inboxes have entries: a bit each, so that a look takes as long as there are queues with news.
pub(super) struct Filled(Box<[AtomicU64]>);

impl Default for Filled {
    fn default() -> Filled {
        Filled((0..MOST_QUEUES / 64).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Filled {
    pub(super) fn note(&self, number: u16) {
        self.0[usize::from(number) / 64].fetch_or(1 << (number % 64), Ordering::Release);
    }

    /// Takes the notes of the first `queues` queues, in the order of their numbers.
    pub(super) fn take(&self, queues: usize) -> impl Iterator<Item = u16> {
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
pub(super) struct Inbox {
    pub(super) sqes: Vec<Sqe>,
    pub(super) doorbells: u32,
    /// The reset comes before the first inline command among them.
    pub(super) reset: bool,
}

/// A queue pair, the application's side.
pub struct SharedQueue {
    pub(super) number: u16,
    pub(super) entries: u32,
    /// Does the host create it by commands?
    pub(super) is_by_command: bool,
    pub(super) bell: Arc<Bell>,
    pub(super) carrier: Carrier,
    pub(super) inbox: Apart<Mutex<Inbox>>,
    pub(super) filled: Arc<Filled>,
    /// Commands submitted and not completed.
    pub(super) outstanding: AtomicU32,
    /// Is the drive unpaced, on a thread of its own?
    pub(super) unpaced: Arc<AtomicBool>,
    /// Completion doorbells that the meter has not counted yet.
    pub(super) completion_doorbells: Apart<AtomicU32>,
    pub(super) sink: Arc<dyn CompletionSink>,
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

    /// Do completions of many commands under way come in groups? Not those of a paced drive, whose times they would
    /// alter, nor those of a drive that runs in calls of its host.
    pub fn gathers(&self) -> bool {
        self.unpaced.load(Ordering::Relaxed) && self.sink.gathers()
    }

    /// Commands under way.
    pub(super) fn under_way(&self) -> u32 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// May this thread submit here?
    ///
    /// # Errors
    /// The drive is carried out by the calls of another thread.
    pub fn check_thread(&self) -> Result<(), OtherThread> {
        self.carrier.check()
    }

    /// Submits all of `sqes` with one doorbell and empties the vector; `quiet` of them get no completion. If
    /// the rings have no room for all that are to complete, returns `false` and submits nothing. The caller
    /// ensures room for the quiet ones: their fetching is not reported.
    ///
    /// A drive that runs in calls of this thread ([`serve_here`](super::serve_here)) has answered when this returns, so
    /// the caller must not hold a lock that its [`CompletionSink`] takes.
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

    /// Hands completions to the host.
    pub(super) fn complete(&self, cqes: &[Cqe]) {
        self.outstanding.fetch_sub(cqes.len() as u32, Ordering::Relaxed);
        self.sink.complete(self, cqes);
    }
}
