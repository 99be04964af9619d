//! `program-error`: a page cannot be programmed. The page is unreadable, and its block is retired: its
//! content is moved to a spare block of its unit, and the page is programmed there. Only the time taken shows
//! it. Without a spare block the drive is read-only from then on.

use super::{Effect, FaultKind, Moment};

/// The row of `program-error` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "program-error",
    origin: "a page cannot be programmed; its block is retired, and a spare block replaces it",
    moments: &[Moment::Program],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::Fail),
};
