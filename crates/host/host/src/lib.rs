//! Drivers: typed key-value commands over queue pairs.
//!
//! | module | runs on |
//! |---|---|
//! | [`modelled`] | a modelled core in model time: for experiments; with SAKER in front in [`modelled::saker`] |
//! | [`threaded`] | application threads, beside the thread of the drive: for programs |
//! | [`tcp`] | a network: NVMe/TCP, to any drive that speaks it |
//! | [`hostkv`] | modelled cores again: a store of crate `store` runs here, and the drive has blocks alone ([`blocks`]) |
//!
//! Each is a [`Client`]: the same calls, the same answers, one [`Error`]; those in wall time are also
//! [`Pipelined`]. The first two are thin: `course` has the steps of a command and the meaning of completions,
//! `slot` what is left of a dropped command, and [`kvdrive_link::transfer::Method`] the transfer of a value.
//! Neither knows what is at the other end of the link.

mod answers;
pub mod blocks;
mod client;
mod course;
mod error;
pub mod hostkv;
pub mod modelled;
mod pipelined;
mod slot;
pub mod tcp;
pub mod threaded;
mod unclaimed;

pub use answers::{IteratorId, Pair};
pub use client::{Answer, Call, Client, Content};
pub use error::Error;
pub use pipelined::{Completion, FailedWrite, Outcome, Pipelined};
