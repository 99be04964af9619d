//! Detects that a process is a forked child. Its memory is a copy of its parent's, but of the parent's threads it has
//! only one: requests to other threads are never answered there, and locks that they held stay locked.

#![expect(unsafe_code, reason = "the handler of forks is registered with the system's C library")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of forks between the first noted process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Remembers the process in which a handle was made. [`ForkCount::is_forked`] costs one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkCount(u32);

impl ForkCount {
    /// Notes this process.
    pub fn now() -> ForkCount {
        // A `Once` could be inherited by a forked child while it is under way.
        static COUNTS: AtomicBool = AtomicBool::new(false);
        if !COUNTS.swap(true, Ordering::Relaxed) {
            count_forks();
        }
        ForkCount(FORKS.load(Ordering::Relaxed))
    }

    /// Is this a child that was forked since then?
    #[inline]
    pub fn is_forked(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}

#[cfg(unix)]
fn count_forks() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler adds to an atomic, which is all that a forked child of a process with threads may do. Without
    // memory for it nothing is registered, and a child is not told apart.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    }
}

/// There is no fork.
#[cfg(not(unix))]
fn count_forks() {}
