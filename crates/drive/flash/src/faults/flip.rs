//! `flip`: a bit of a page's data is changed on the medium, so that its checksum does not match. The header
//! beside the data is intact, so the drive knows which data it has lost.
//!
//! A page that is struck by a read answers 88h from then on; a page that is struck by its program answers 88h
//! from its first read on.

use super::{Effect, FaultKind, Moment};

/// The row of `flip` in [`super::FAULTS`].
pub const KIND: FaultKind = FaultKind {
    name: "flip",
    origin: "a bit of a page is altered on the medium; the page's checksum shows it",
    moments: &[Moment::Read, Moment::Program],
    keys: &[],
    example: "",
    effect: |_| Ok(Effect::Flip),
};
