//! The wire between host and drive: queues, host memory, PCIe as bytes and time, and the transfer methods.
//!
//! Host and drive share only what is here: 64-byte submission entries, 16-byte completion entries, doorbells,
//! and DMA to host memory. Every byte is counted where it crosses ([`meter`]), in the function that also
//! takes its time ([`pcie`]), so no method can move anything for free. A drive sees a host only through a
//! [`port`].
//!
//! | module | what it is |
//! |---|---|
//! | [`memory`] | host memory, which the drive's DMA reads and writes |
//! | [`meter`] | payload and wire bytes by traffic class |
//! | [`port`] | the drive's interface to a host: requests |
//! | [`session`] | the drive's state of one queue |
//! | [`pcie`] | the link: directions, DMA engine, doorbells, fetches, completions |
//! | [`queue`] | one submission queue and its completion queue |
//! | [`prp`] | physical region pages and lists, as a drive walks them |
//! | [`sgl`] | scatter-gather lists, as a drive walks them |
//! | `arrivals` | commands and resets that arrive at a drive from outside, with model times |
//! | `served` | the calls of the serving loop to a drive |
//! | [`shared`] | queues and host memory that applications use from other threads |
//! | [`recording`] | arrivals of a run in wall time on file, and their replay in virtual time |
//! | [`transfer`] | transfer methods, both halves of each in one file |
//!
//! This crate knows no engine and no flash: [`transfer::Landing`] hides where a value lands.

mod arrivals;
pub mod memory;
pub mod meter;
pub mod pcie;
pub mod port;
pub mod prp;
pub mod queue;
pub mod recording;
mod served;
pub mod session;
pub mod sgl;
pub mod shared;
pub mod transfer;

pub use memory::{BadAddress, HostMemory, LocalMemory};
pub use meter::{Class, Meter, Traffic};
pub use pcie::{Function, Interrupt, Link, LinkConfig, PciePort};
pub use port::{Exposed, Port, Request};
pub use queue::QueuePair;
pub use session::Session;
pub use transfer::{Arrival, Landing};
