//! `erase-error`: a block cannot be erased. Depending on the rule's seed, its pages are then unchanged or
//! unreadable; the block is retired, and a spare block of its unit replaces it. Without a spare block the
//! drive is read-only from then on.

use super::{Effect, FaultKind, Moment};

/// The row of `erase-error` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "erase-error",
    origin: "a block cannot be erased; it is retired, and a spare block replaces it",
    moments: &[Moment::Erase],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::Fail),
};
