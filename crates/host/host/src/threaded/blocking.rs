//! Waiting on an application's own thread: a future run to its end, spinning for a moment where a core is to
//! spare, then parked.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use kvdrive_sim::wall::Patience;

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    fn wait(&self, patience: &mut Patience) {
        while !self.woken.load(Ordering::Acquire) && patience.look_again() {
            std::hint::spin_loop();
        }
        while !self.woken.load(Ordering::Acquire) {
            thread::park();
        }
        patience.end();
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

/// Runs `future` to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let (parker, waker, mut patience) = PARKER.take().unwrap_or_else(|| {
        let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
        (parker.clone(), Waker::from(parker), Patience::default())
    });
    let mut context = Context::from_waker(&waker);
    let output = loop {
        parker.woken.store(false, Ordering::Release);
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => break output,
            Poll::Pending => parker.wait(&mut patience),
        }
    };
    PARKER.set(Some((parker, waker, patience)));
    output
}
