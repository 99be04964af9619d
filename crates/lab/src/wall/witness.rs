//! A look at the drive from another thread.
//!
//! The drive never leaves its thread. But a completion wakes who waits for it there, between two events of
//! the model: a command whose waker takes a snapshot brings it across, and nothing of the drive notices.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use kvdrive_host::threaded::{Connector, Error};

use crate::run::Snapshot;

type Look = Box<dyn Fn() -> Snapshot>;

thread_local! {
    /// On a drive's thread: the drive as it is now.
    static SHOWN: RefCell<Option<Look>> = const { RefCell::new(None) };
}

/// From now on the drive of this thread can be looked at.
pub(super) fn show(look: impl Fn() -> Snapshot + 'static) {
    SHOWN.set(Some(Box::new(look)));
}

/// It no longer can, and nothing of it is kept.
pub(super) fn hide() {
    SHOWN.take();
}

struct Witness {
    taken: Mutex<Option<Snapshot>>,
    waiting: Thread,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        let snapshot = SHOWN.with_borrow(|look| look.as_ref().map(|look| look()));
        if snapshot.is_some() {
            *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
        }
        self.waiting.unpark();
    }
}

/// The drive at the end of an *identify* that it is sent for this. Nothing else may be under way.
///
/// # Errors
/// The drive is off.
pub(super) fn look(connector: &Connector) -> Result<Snapshot, Error> {
    let witness = Arc::new(Witness { taken: Mutex::default(), waiting: thread::current() });
    let waker = Waker::from(witness.clone());
    loop {
        let mut identify = pin!(connector.identify());
        loop {
            match identify.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(answer) => {
                    answer?;
                    break;
                }
                Poll::Pending => thread::park(),
            }
        }
        // None when it was answered before it was waited for: nobody was woken then.
        if let Some(snapshot) = witness.taken.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(snapshot);
        }
    }
}
