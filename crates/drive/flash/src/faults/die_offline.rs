//! `die-offline`: the die of an operation is lost, in this power cycle and, because the table of bad blocks
//! records it, in all later ones. Its content cannot be read: 88h, never an older version. Nothing can be
//! written there either, and a unit's spare blocks are on its own die, so the first program or erase of a
//! block there makes the drive read-only.

use super::{Effect, FaultKind, Moment};

/// The row of `die-offline` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "die-offline",
    origin: "a die no longer answers: pairs on it are answered 88h, and the first write to it makes the drive read-only",
    moments: &[Moment::Program, Moment::Read, Moment::Erase],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::DieOffline),
};
