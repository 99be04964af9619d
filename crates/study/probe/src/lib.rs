//! Inspection of one drive: what power cuts leave of it ([`crash`](mod@crash)), which steps a command takes
//! ([`explain`](mod@explain)), what an image holds ([`image`]), and random drives at random ends ([`storm`]).

pub mod crash;
pub mod explain;
pub mod image;
pub mod storm;
