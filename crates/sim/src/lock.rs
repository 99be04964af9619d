//! Locks between tasks: held across `.await`, granted in order, inert after a power cut.

use std::cell::{Cell, RefCell};

use crate::executor::Sim;
use crate::wait_queue::WaitQueue;

/// One holder at a time. Guards nothing by itself: it orders sections of code.
pub struct Mutex {
    sim: Sim,
    held: Cell<bool>,
    queue: WaitQueue,
}

impl Mutex {
    /// A free lock.
    pub fn new(sim: &Sim) -> Mutex {
        Mutex {
            sim: sim.clone(),
            held: Cell::new(false),
            queue: WaitQueue::new(sim),
        }
    }

    /// Waits until the lock is ours.
    pub async fn lock(&self) -> MutexGuard<'_> {
        if self.held.get() {
            self.queue.wait().await; // handed over: `held` stays set
        } else {
            self.held.set(true);
        }
        MutexGuard { mutex: self }
    }

    /// The lock, if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_>> {
        if self.held.replace(true) {
            None
        } else {
            Some(MutexGuard { mutex: self })
        }
    }
}

/// A held [`Mutex`].
pub struct MutexGuard<'a> {
    mutex: &'a Mutex,
}

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        if !self.mutex.sim.halted() && !self.mutex.queue.wake_one() {
            self.mutex.held.set(false);
        }
    }
}

/// One holder at a time *per key*. Made for few holders (commands in flight), so it scans instead of hashing.
pub struct KeyedLock<K> {
    sim: Sim,
    held: RefCell<Vec<K>>,
    released: WaitQueue,
}

impl<K: Copy + Eq> KeyedLock<K> {
    /// No key is held.
    pub fn new(sim: &Sim) -> KeyedLock<K> {
        KeyedLock {
            sim: sim.clone(),
            held: RefCell::default(),
            released: WaitQueue::new(sim),
        }
    }

    /// Waits until nobody else holds `key`. Waiters of one key are served in order.
    pub async fn lock(&self, key: K) -> KeyGuard<'_, K> {
        while self.held.borrow().contains(&key) {
            self.released.wait().await;
        }
        self.held.borrow_mut().push(key);
        KeyGuard { lock: self, key }
    }
}

/// A held key.
pub struct KeyGuard<'a, K: Copy + Eq> {
    lock: &'a KeyedLock<K>,
    key: K,
}

impl<K: Copy + Eq> Drop for KeyGuard<'_, K> {
    fn drop(&mut self) {
        if self.lock.sim.halted() {
            return;
        }
        let mut held = self.lock.held.borrow_mut();
        let index = held
            .iter()
            .position(|key| *key == self.key)
            .expect("a guard's key is held");
        held.swap_remove(index);
        drop(held);
        self.lock.released.wake_all();
    }
}
