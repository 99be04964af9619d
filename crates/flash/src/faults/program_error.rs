//! `program-error`: a page cannot be programmed. What was to lie there cannot be read, and the block is
//! retired: what it held is moved to a spare block of its unit, the page goes there, and nobody but the clock
//! notices. Without a spare block the drive is read-only from then on.

use super::{Effect, FaultKind, Moment};

/// The row of `program-error` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "program-error",
    origin: "a page cannot be programmed; its block is retired, and a spare one takes its place",
    moments: &[Moment::Program],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::Fail),
};
