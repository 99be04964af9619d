//! Drivers: typed key-value commands over queue pairs.
//!
//! | module | runs on |
//! |---|---|
//! | [`modelled`] | a modelled core in model time: for experiments |
//! | [`threaded`] | application threads, beside the thread of the drive: for programs |
//! | [`tcp`] | a network: NVMe/TCP, to any drive that speaks it |
//!
//! Both pump the same state machines ([`kvdrive_link::transfer::Method`]); neither knows what is behind the
//! link.

mod answers;
mod course;
pub mod modelled;
mod slot;
pub mod tcp;
pub mod threaded;
mod unclaimed;
