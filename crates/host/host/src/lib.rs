//! Drivers: typed key-value commands over queue pairs.
//!
//! | module | runs on |
//! |---|---|
//! | [`modelled`] | a modelled core in model time: for experiments; with SAKER in front in [`modelled::saker`] |
//! | [`threaded`] | application threads, beside the thread of the drive: for programs |
//! | [`tcp`] | a network: NVMe/TCP, to any drive that speaks it |
//! | [`spread`] | the same, to several drives that share the keys |
//! | [`hostkv`] | modelled cores, with a store of crate `store` on the host, over a drive of [`blocks`] |
//!
//! Each is a [`Client`]: the same calls, the same answers, one [`Error`]; those in wall time are also
//! [`Pipelined`]. Drivers submit and wait. `conversation` decides once for all of them which commands a call
//! needs, what a completion means and what remains of a dropped command; [`kvdrive_link::transfer::Method`]
//! decides how a value travels. No driver knows what is at the other end of its queue.

mod answers;
pub mod blocks;
mod client;
mod conversation;
mod error;
pub mod hostkv;
pub mod modelled;
mod pipelined;
pub mod spread;
pub mod tcp;
pub mod threaded;

pub use answers::{IteratorId, Pair, Pairs};
pub use client::{Answer, Call, Calls, Client, Content};
pub use error::Error;
pub use pipelined::{Completion, FailedWrite, Pipelined};
