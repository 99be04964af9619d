//! `read-error`: a page cannot be read, this time. What is on flash stays as it is.
//!
//! Each attempt to read a page is asked about: a drive that tries again (`flash.read_retries`) may get it the
//! next time, which takes longer. What cannot be read by any of them is lost to whoever asked. A host
//! gets 88h for a value that lies there; an FTL that was about to move the page marks it as lost.

use super::{Effect, FaultKind, Moment};

/// The row of `read-error` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "read-error",
    origin: "a page of flash cannot be read, this time; a host gets 88h",
    moments: &[Moment::Read],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::Unreadable),
};
