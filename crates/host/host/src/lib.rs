//! Drivers: typed key-value commands over queue pairs.
//!
//! | module | runs on |
//! |---|---|
//! | [`modelled`] | a modelled core in model time: for experiments; with SAKER in front in [`modelled::saker`] |
//! | [`driver`] | application threads: futures, threads that wait, pipelines, over any transport |
//! | [`threaded`] | the transport to a drive of this program, on a thread of its own |
//! | [`tcp`] | the transport of a network: NVMe/TCP, to any drive that speaks it |
//! | [`node`] | the transport of a device of Linux, `/dev/ngXnY`, to any drive behind one |
//! | [`mod@reach`] | drives that are not in this program, by their address: a network's, or a device of Linux |
//! | [`saker`] | SAKER in front of any driver |
//! | [`spread`] | several drives that share the keys |
//! | [`hostkv`] | modelled cores, or a thread of the program, with a store of crate `store` on the host, over a drive of [`blocks`] |
//!
//! Each is a [`Client`]: the same calls, the same answers, one [`Error`]; those in wall time are also
//! [`Pipelined`]. Drivers submit and wait. `conversation` decides once for all of them which commands a call
//! needs, what a completion means and what remains of a dropped command; [`kvdrive_link::transfer::Method`]
//! decides how a value travels. No driver knows what is at the other end of its queue.

mod access;
mod answers;
pub mod blocks;
mod client;
mod conversation;
pub mod driver;
mod error;
pub mod hostkv;
pub mod modelled;
pub mod node;
mod pipelined;
pub mod reach;
pub mod saker;
pub mod spread;
pub mod tcp;
pub mod threaded;
mod transport;

pub use answers::{IteratorId, Pair, Pairs};
pub use client::{Answer, Call, Calls, Client, Content};
pub use driver::Driver;
pub use error::Error;
pub use pipelined::{Completion, FailedWrite, Pipelined};
