//! Whether a signal interrupts a call that waits for its answer.

use crate::kernel;

/// How a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Once this process has received it, only a signal that ends the thread interrupts it (Linux 5.19).
    Killable,
    /// Any signal with a handler interrupts it.
    Interrupted,
}

impl Waiting {
    /// The best that this system has.
    pub fn of_system() -> Waiting {
        if kernel::waits_killable() { Waiting::Killable } else { Waiting::Interrupted }
    }
}
