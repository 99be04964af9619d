//! Waiting on an application's own thread: a future run to its end, first spinning, then parked.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Looks before the thread is parked: some tens of microseconds, about what waking costs.
const SPINS: u32 = 400;
/// Looks between two offers of the core to others: the drive may be waiting for it.
const SPINS_PER_YIELD: u32 = 100;

struct Parker {
    thread: Thread,
    woken: AtomicBool,
    spins: u32,
}

impl Parker {
    fn new() -> Arc<Parker> {
        let alone = thread::available_parallelism().is_ok_and(|threads| threads.get() == 1);
        let spins = if alone { 0 } else { SPINS };
        Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false), spins })
    }

    fn wait(&self) {
        for spin in 1..=self.spins {
            if self.woken.load(Ordering::Acquire) {
                return;
            }
            if spin % SPINS_PER_YIELD == 0 {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        while !self.woken.load(Ordering::Acquire) {
            thread::park();
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
    static PARKER: Cell<Option<(Arc<Parker>, Waker)>> = const { Cell::new(None) };
}

/// Runs `future` to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let (parker, waker) = PARKER.take().unwrap_or_else(|| {
        let parker = Parker::new();
        (parker.clone(), Waker::from(parker))
    });
    let mut context = Context::from_waker(&waker);
    let output = loop {
        parker.woken.store(false, Ordering::Release);
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => break output,
            Poll::Pending => parker.wait(),
        }
    };
    PARKER.set(Some((parker, waker)));
    output
}
