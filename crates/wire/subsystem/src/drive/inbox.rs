//! Completions on their way from the drive's thread to the thread of its namespace.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use kvdrive_link::shared::{CompletionSink, SharedQueue};
use kvdrive_nvme::Cqe;
use kvdrive_nvme::transport_fault::TransportFault;

use kvdrive_sim::wall::{Bell, lock};

/// News from the drive's thread for the server's: completions with the number of their queue.
pub(super) struct Inbox {
    pub(super) completions: Mutex<Vec<(u32, Cqe)>>,
    /// Injected faults of answers to come: number of the queue, command identifier, fault.
    pub(super) struck: Mutex<Vec<(u32, u16, TransportFault)>>,
    pub(super) is_struck: AtomicBool,
    pub(super) filled: AtomicBool,
    pub(super) off: AtomicBool,
    pub(super) bell: Arc<Bell>,
}

impl Inbox {
    /// The injected fault of the answer to this command.
    pub(super) fn take_struck(&self, number: u32, cid: u16) -> Option<TransportFault> {
        if !self.is_struck.load(Ordering::Acquire) {
            return None;
        }
        let mut struck = lock(&self.struck);
        let at = struck.iter().position(|(of, which, _)| (*of, *which) == (number, cid));
        let fault = at.map(|at| struck.swap_remove(at).2);
        self.is_struck.store(!struck.is_empty(), Ordering::Release);
        fault
    }
}

/// The sink of one queue's completions.
pub(super) struct Outlet {
    pub(super) number: u32,
    pub(super) inbox: Arc<Inbox>,
}

impl CompletionSink for Outlet {
    fn complete(&self, _: &SharedQueue, cqes: &[Cqe]) {
        lock(&self.inbox.completions).extend(cqes.iter().map(|cqe| (self.number, *cqe)));
        self.inbox.filled.store(true, Ordering::Release);
        self.inbox.bell.ring();
    }

    fn struck(&self, cid: u16, fault: TransportFault) {
        lock(&self.inbox.struck).push((self.number, cid, fault));
        self.inbox.is_struck.store(true, Ordering::Release);
    }

    fn power_off(&self) {
        self.inbox.off.store(true, Ordering::Release);
        self.inbox.bell.ring();
    }
}
