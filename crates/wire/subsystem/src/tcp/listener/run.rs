//! The loop of the server, from its first turn to its end.

use std::io;
use std::time::Duration;

use super::{Server, beside};
use crate::shared::Core;

/// Polls without result, while commands are in progress, before the thread sleeps.
const IDLE_LOOKS: u32 = 64;

impl Server {
    /// Serves until its end is requested; with `once`, until the last connection has ended. Returns the core, whose
    /// subsystem has the counts.
    ///
    /// # Errors
    /// The error of the system when it cannot wait for sockets.
    pub fn run(mut self, once: bool) -> io::Result<Core> {
        self.once = once;
        while !self.is_over {
            self = match self.core.drive.take() {
                Some(drive) => beside::run(self, drive)?,
                None => self.run_alone()?,
            };
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.connection.end(&mut self.core);
        }
        self.functions.end(&mut self.core);
        // Calls of other threads that still wait return an error from here on.
        *self.handle.orders() = None;
        Ok(self.core)
    }

    /// Serves until the server ends, or until a drive wants to run in this loop.
    fn run_alone(mut self) -> io::Result<Server> {
        let mut idle_looks = 0;
        while !self.is_over {
            self.handle.run_orders(&mut self.core);
            if self.core.drive.is_some() {
                break;
            }
            let under_way = self.core.subsystem.poll();
            let has_arrived = self.look_at_functions();
            let busy = !self.ready.is_empty() || self.deliver() || has_arrived;
            idle_looks = if busy { 0 } else { idle_looks + 1 };
            let timeout = if !self.ready.is_empty() || under_way && idle_looks < IDLE_LOOKS {
                Duration::ZERO
            } else {
                self.rest()
            };
            self.wait(timeout)?;
            if self.take_events() {
                idle_looks = 0;
            }
        }
        Ok(self)
    }
}
