//! `read-error`: a page cannot be read this time. Its content on flash is unchanged.
//!
//! The rule is evaluated for each attempt to read a page: a drive that retries (`flash.read_retries`) may
//! succeed at the next attempt, which takes longer. If all attempts fail, the data is lost to the reader: a
//! host gets 88h for a value on the page, and an FTL that was about to move the page marks it as lost.

use super::{Effect, FaultKind, Moment};

/// The row of `read-error` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "read-error",
    origin: "a read of a page of flash fails, and later reads may succeed; a host gets 88h",
    moments: &[Moment::Read],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::Unreadable),
};
