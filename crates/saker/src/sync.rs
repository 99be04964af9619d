//! Locks and counters that threads share; under test those of `shuttle`, which tries many orders of threads.

use std::sync::PoisonError;

#[cfg(test)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(test)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Takes a lock. A thread that panicked with it has left nothing half done: what is kept under our locks
/// changes in one step, or an assertion of ours has failed already.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
