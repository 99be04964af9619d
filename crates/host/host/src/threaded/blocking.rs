//! Waiting on an application's own thread: runs a future to its end, spins for a moment if a core is idle,
//! then parks.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use kvdrive_sim::wall::{Patience, Stopwatch};

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    /// Waits to be woken, or until `limit` has passed; `true`: it was woken.
    fn wait(&self, patience: &mut Patience, limit: Option<&Limit>) -> bool {
        let is_woken = || self.woken.load(Ordering::Acquire);
        while !is_woken() && limit.is_none_or(|limit| !limit.left().is_zero()) && patience.look_again() {
            std::hint::spin_loop();
        }
        while !is_woken() {
            match limit.map(Limit::left) {
                None => thread::park(),
                Some(Duration::ZERO) => break,
                Some(left) => thread::park_timeout(left),
            }
        }
        patience.end();
        is_woken()
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

thread_local! {
    /// This thread's parker, while no call uses it.
    static PARKER: Cell<Option<(Arc<Parker>, Waker, Patience)>> = const { Cell::new(None) };
}

/// A time to wait, and the moment from which it counts.
struct Limit {
    since: Stopwatch,
    span: Duration,
}

impl Limit {
    fn left(&self) -> Duration {
        self.span.saturating_sub(Duration::from_nanos(self.since.ns()))
    }
}

/// Runs `future` to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_within(future, None).expect("it is waited for without a limit")
}

/// Runs `future` on this thread to its end, or until it has waited for `span`; `None`: without a limit.
pub(super) fn block_on_within<F: Future>(future: F, span: Option<Duration>) -> Option<F::Output> {
    let limit = span.map(|span| Limit { since: Stopwatch::start(), span });
    let mut future = pin!(future);
    let (parker, waker, mut patience) = PARKER.take().unwrap_or_else(|| {
        let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
        (parker.clone(), Waker::from(parker), Patience::default())
    });
    let mut context = Context::from_waker(&waker);
    let output = loop {
        parker.woken.store(false, Ordering::Release);
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => break Some(output),
            Poll::Pending if parker.wait(&mut patience, limit.as_ref()) => {}
            Poll::Pending => break None,
        }
    };
    PARKER.set(Some((parker, waker, patience)));
    output
}
