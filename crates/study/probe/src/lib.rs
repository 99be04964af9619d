//! Examination of one drive: recovery after power cuts ([`crash`](mod@crash)), the steps of a command
//! ([`explain`](mod@explain)), the content of an image ([`image`]), and random drives under random faults and
//! cuts ([`storm`]).

pub mod crash;
pub mod explain;
pub mod image;
pub mod storm;
