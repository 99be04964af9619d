//! Operations that a bad block failed, and how they are counted.

use std::cell::Cell;

/// A page that could not be programmed. It cannot be read, and its block must not be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page cannot be programmed")]
pub(super) struct ProgramError;

/// A block that could not be erased. Its pages are unchanged, or cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block cannot be erased")]
pub(super) struct EraseError;

/// Counts one more.
pub(super) fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
