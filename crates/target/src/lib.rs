//! The front door: a subsystem with its hosts, controllers and namespaces, and NVMe/TCP in front of it.
//!
//! ```text
//!   socket ──► tcp::listener ──► tcp::connection ──► subsystem ──► Namespace ──► a drive on its own thread
//!              epoll, one        bytes in, bytes     hosts,        what takes    (drive)
//!              thread            out; no socket      controllers   a command
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`subsystem`] | what a host meets, whatever it came by: no I/O, no clock |
//! | [`namespace`] | the seam to what keeps pairs: takes a command with its buffer and completes it |
//! | [`drive`] | a namespace that is a drive behind `kvdrive_link::shared` |
//! | [`log`] | why connections came to nothing, in lines for a person |
//! | [`bell`] | how another thread wakes the one with the sockets |
//! | [`buffer`] | memory for data, within a budget |
//! | [`tcp`] | NVMe/TCP: connections as state machines over bytes, and the sockets they use |
//!
//! What this crate does not know: workloads, engines, flash.

pub mod bell;
pub mod buffer;
pub mod drive;
pub mod log;
pub mod namespace;
pub mod subsystem;
pub mod tcp;
