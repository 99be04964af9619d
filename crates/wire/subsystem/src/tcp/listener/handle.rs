//! Access to a server from other threads: runs closures on its thread, and asks it to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use kvdrive_sim::wall::Bell;

use crate::shared::Core;

pub(super) type Order = Box<dyn FnOnce(&mut Core) + Send>;

/// A server, as other threads reach it.
#[derive(Clone)]
pub struct ServerHandle {
    pub(super) bell: Arc<Bell>,
    pub(super) drain: Arc<AtomicBool>,
    pub(super) at_once: Arc<AtomicBool>,
    /// Closures to run on its thread. `None`: it has ended.
    pub(super) orders: Arc<Mutex<Option<Vec<Order>>>>,
}

/// The server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has ended")]
pub struct ServerEnded;

impl ServerHandle {
    /// Runs `act` on the server's thread, between two turns, and waits for its result. A call on that thread
    /// itself would wait for ever.
    ///
    /// # Errors
    /// The server has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, ServerEnded> {
        let (answer, answered) = mpsc::channel();
        // The caller may have ended: its answer is dropped then.
        let order: Order = Box::new(move |core| _ = answer.send(act(core)));
        self.orders().as_mut().ok_or(ServerEnded)?.push(order);
        self.bell.ring();
        answered.recv().map_err(|_| ServerEnded)
    }

    pub(super) fn orders(&self) -> MutexGuard<'_, Option<Vec<Order>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn run_orders(&self, core: &mut Core) {
        let orders = self.orders().as_mut().map_or_else(Vec::new, std::mem::take);
        orders.into_iter().for_each(|order| order(core));
    }

    /// Was the server asked to end?
    pub fn is_draining(&self) -> bool {
        self.drain.load(Ordering::SeqCst)
    }

    /// Asks the server to take no more commands, finish those in progress, and end. A second call ends it at
    /// once.
    pub fn stop(&self) {
        if self.drain.swap(true, Ordering::SeqCst) {
            self.at_once.store(true, Ordering::SeqCst);
        }
        self.bell.ring();
    }
}
