//! Waiting on an application's own thread: runs a future to its end, and meanwhile brings the completions that
//! the future waits for, if no other thread does; else spins for a moment if a core is idle, then parks.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use kvdrive_sim::wall::{Patience, Stopwatch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Sleeps until one of the descriptors has bytes to read, or room if it has bytes to be sent, or a signal comes;
/// `false`: `timeout` has passed without one.
pub(crate) fn sleep_for_any(
    descriptors: &[(BorrowedFd<'_>, bool)],
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let events = |has_unsent| if has_unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let wanted = descriptors.iter();
    let mut wanted: Vec<_> =
        wanted.map(|(of, unsent)| PollFd::from_borrowed_fd(*of, events(*unsent))).collect();
    let timeout = timeout
        .map(|span| Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) });
    match poll(&mut wanted, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The thread that brings a transport's completions to the board.
pub(crate) enum Brought {
    /// A thread of the transport's own: callers park.
    Elsewhere,
    /// This one, just now: whatever came is delivered.
    Here,
    /// Nobody: the time is over.
    No,
}

/// A port whose completions some thread has to bring.
pub(super) trait Bringer: Send + Sync {
    /// Brings completions, waiting for `limit` at most, unless `is_woken`.
    fn bring(&self, is_woken: &dyn Fn() -> bool, limit: Option<Duration>) -> Brought;

    /// Has a thread of its own bring them from now on.
    fn start_reader(self: Arc<Self>);
}

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

/// How a thread waits.
struct Manner {
    patience: Patience,
    /// For a group of completions, which may be taken late.
    for_group: bool,
}

impl Manner {
    fn look_again(&mut self) -> bool {
        if self.for_group { self.patience.look_again_for_group() } else { self.patience.look_again() }
    }

    fn end(&mut self) {
        if self.for_group { self.patience.end_group() } else { self.patience.end() }
    }
}

impl Parker {
    /// Waits to be woken, or until `limit` has passed; `true`: it was woken.
    fn wait(&self, manner: &mut Manner, limit: Option<&Limit>) -> bool {
        let is_woken = || self.woken.load(Ordering::Acquire);
        while !is_woken() && limit.is_none_or(|limit| !limit.left().is_zero()) && manner.look_again() {
            std::hint::spin_loop();
        }
        while !is_woken() {
            match limit.map(Limit::left) {
                None => thread::park(),
                Some(Duration::ZERO) => break,
                Some(left) => thread::park_timeout(left),
            }
        }
        manner.end();
        is_woken()
    }
}

impl Parker {
    /// Brings what the future waits for, or waits to be woken; `false`: the limit has passed.
    fn bring_or_wait(&self, manner: &mut Manner, limit: Option<&Limit>) -> bool {
        let bringers = WAITED_FOR.with_borrow_mut(|waited_for| waited_for.as_mut().map(std::mem::take));
        let mut bringers = bringers.unwrap_or_default().into_iter();
        let Some(first) = bringers.next() else { return self.wait(manner, limit) };
        // This thread can sleep for one of them only.
        bringers.for_each(Bringer::start_reader);
        let is_woken = || self.woken.load(Ordering::Acquire);
        match first.bring(&is_woken, limit.map(Limit::left)) {
            Brought::Here => true,
            Brought::No => is_woken(),
            Brought::Elsewhere => self.wait(manner, limit),
        }
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
    /// `Some`: this thread is in [`block_on`], whose future waits for completions of these.
    static WAITED_FOR: RefCell<Option<Vec<Arc<dyn Bringer>>>> = const { RefCell::new(None) };
}

/// Has the present [`block_on`] of this thread bring completions; `false`: there is none.
pub(super) fn bring_while_blocked(bringer: &Arc<dyn Bringer>) -> bool {
    WAITED_FOR.with_borrow_mut(|waited_for| {
        let Some(waited_for) = waited_for else { return false };
        if !waited_for.iter().any(|other| Arc::ptr_eq(other, bringer)) {
            waited_for.push(bringer.clone());
        }
        true
    })
}

/// What the [`block_on`] around this one waits for, until this one ends.
struct Inner(Option<Vec<Arc<dyn Bringer>>>);

impl Drop for Inner {
    fn drop(&mut self) {
        WAITED_FOR.set(self.0.take());
    }
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
pub(crate) fn block_on_within<F: Future>(future: F, span: Option<Duration>) -> Option<F::Output> {
    block_on_for(future, span, false)
}

/// As [`block_on_within`]; `for_group`: the future waits for a group of completions while the drive has more to do.
pub(super) fn block_on_for<F: Future>(
    future: F,
    span: Option<Duration>,
    for_group: bool,
) -> Option<F::Output> {
    let limit = span.map(|span| Limit { since: Stopwatch::start(), span });
    let mut future = pin!(future);
    let (parker, waker, patience) = PARKER.take().unwrap_or_else(|| {
        let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
        (parker.clone(), Waker::from(parker), Patience::default())
    });
    let mut manner = Manner { patience, for_group };
    let mut context = Context::from_waker(&waker);
    let _inner = Inner(WAITED_FOR.replace(Some(Vec::new())));
    let output = loop {
        parker.woken.store(false, Ordering::Release);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            break Some(output);
        }
        if !parker.bring_or_wait(&mut manner, limit.as_ref()) {
            break None;
        }
    };
    PARKER.set(Some((parker, waker, manner.patience)));
    output
}
