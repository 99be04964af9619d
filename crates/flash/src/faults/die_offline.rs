//! `die-offline`: the die of an operation answers no more, in this life of the drive and, since the table of bad
//! blocks says so, in all others. What lies there cannot be read: 88h, never an older version. Nothing can be
//! written there either, and a unit's spare blocks are on its own die, so the first program or erase of a block
//! there makes the drive read-only.

use super::{Effect, FaultKind, Moment};

/// The row of `die-offline` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "die-offline",
    origin: "a die answers no more: what lies there is 88h, and nothing more is written",
    moments: &[Moment::Program, Moment::Read, Moment::Erase],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::DieOffline),
};
