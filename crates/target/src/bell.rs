//! How another thread tells the one with the sockets that it has something, waking it only if it sleeps.

use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes the thread that waits for sockets.
pub struct Bell {
    waker: mio::Waker,
    asleep: AtomicBool,
}

impl Bell {
    pub(crate) fn new(waker: mio::Waker) -> Bell {
        Bell { waker, asleep: AtomicBool::new(false) }
    }

    /// There is something to look at.
    pub fn ring(&self) {
        // Sequentially consistent, as in `sleeps`: either the sleeper sees what there is, or the ringer the
        // sleeper.
        if self.asleep.swap(false, Ordering::SeqCst) {
            // A waker fails when the system has no memory for eight bytes; the thread then looks at its next
            // tick.
            let _ = self.waker.wake();
        }
    }

    /// The thread is about to sleep. It has to look once more before it does.
    pub(crate) fn sleeps(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// It is awake.
    pub(crate) fn is_awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}
