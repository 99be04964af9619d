//! Locks between tasks: they may be held across waits, are granted in FIFO order, and do nothing after a
//! power cut.

use std::cell::{Cell, RefCell};

use crate::executor::Sim;
use crate::wait_queue::WaitQueue;

/// A lock with one holder at a time. It guards no data by itself: it orders sections of code.
pub struct Mutex {
    sim: Sim,
    held: Cell<bool>,
    queue: WaitQueue,
}

impl Mutex {
    /// An unlocked mutex.
    pub fn new(sim: &Sim) -> Mutex {
        Mutex { sim: sim.clone(), held: Cell::new(false), queue: WaitQueue::new(sim) }
    }

    /// Waits until the lock is free and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_> {
        if self.held.get() {
            self.queue.handover((), || self.release()); // `held` stays set
        } else {
            self.held.set(true);
        }
        MutexGuard { mutex: self }
    }

    /// Takes the lock if it is free; does not wait.
    pub fn try_lock(&self) -> Option<MutexGuard<'_>> {
        if self.held.replace(true) { None } else { Some(MutexGuard { mutex: self }) }
    }

    #[inline]
    fn release(&self) {
        if !self.queue.wake_one() {
            self.held.set(false);
        }
    }
}

/// A held [`Mutex`].
pub struct MutexGuard<'a> {
    mutex: &'a Mutex,
}

impl Drop for MutexGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.mutex.sim.halted() {
            self.mutex.release();
        }
    }
}

/// A lock with one holder at a time *per key*. Made for few holders (commands in flight), so it scans instead
/// of hashing.
pub struct KeyedLock<K> {
    sim: Sim,
    held: RefCell<Vec<K>>,
    queue: WaitQueue<K>,
}

impl<K: Copy + Eq> KeyedLock<K> {
    /// A lock with no key held.
    pub fn new(sim: &Sim) -> KeyedLock<K> {
        KeyedLock { sim: sim.clone(), held: RefCell::default(), queue: WaitQueue::tagged(sim) }
    }

    /// Waits until `key` is free and takes it. Waiters of one key are served in FIFO order; no task can
    /// overtake them.
    #[inline]
    pub fn lock(&self, key: K) -> KeyGuard<'_, K> {
        let is_held = self.held.borrow().contains(&key);
        if is_held {
            self.queue.handover(key, || self.release(key)); // stays in `held`
        } else {
            self.held.borrow_mut().push(key);
        }
        KeyGuard { lock: self, key }
    }
}

impl<K: Copy + Eq> KeyedLock<K> {
    #[inline]
    fn release(&self, key: K) {
        if self.queue.wake_tagged(key) {
            return;
        }
        let mut held = self.held.borrow_mut();
        let index = held.iter().position(|other| *other == key).expect("a guard's key is held");
        held.swap_remove(index);
    }
}

/// A held key.
pub struct KeyGuard<'a, K: Copy + Eq> {
    lock: &'a KeyedLock<K>,
    key: K,
}

impl<K: Copy + Eq> Drop for KeyGuard<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if !self.lock.sim.halted() {
            self.lock.release(self.key);
        }
    }
}
