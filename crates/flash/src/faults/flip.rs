//! `flip`: a bit of a page's data is altered on the medium, and its checksum no longer fits. The header
//! beside it is whole, so the drive knows what it has lost.
//!
//! A page that is struck when it is read answers 88h then and ever after; one that is struck when it is
//! programmed waits for its first reader.

use super::{Effect, FaultKind, Moment};

/// The row of `flip` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "flip",
    origin: "a bit of a page is altered on the medium; its checksum tells",
    moments: &[Moment::Read, Moment::Program],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::Flip),
};
