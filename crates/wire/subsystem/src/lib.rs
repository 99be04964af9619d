//! The target: a subsystem with its hosts, controllers and namespaces, and the transports in front of it, NVMe/TCP and
//! vfio-user.
//!
//! ```text
//!   socket ──► tcp::listener ──► tcp::connection ──► subsystem ──► Namespace ──► a drive on its own thread
//!              epoll, one        bytes in, bytes     hosts,        executes      (drive)
//!              thread            out; no socket      controllers   commands
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`subsystem`] | the controller model, the same for every transport: no I/O, no clock |
//! | [`namespace`] | the interface to what holds pairs or blocks: takes a command with its buffer and completes it |
//! | [`drive`] | a drive as a namespace, reached through `kvdrive_link::shared` |
//! | [`log`] | one line for each connection that failed, for the operator |
//! | [`sharing`] | the rule by which hosts share memory |
//! | [`buffer`] | memory for data, within a budget |
//! | [`shared`] | what all connections and functions of one thread share |
//! | [`private`] | UNIX sockets that only the user of this program can open |
//! | [`tcp`] | NVMe/TCP: connections as state machines over bytes, and the sockets they use |
//! | [`vfio`] | vfio-user: PCI functions with registers, doorbells and rings in memory of their clients (on Linux; elsewhere it says so) |
//!
//! This crate knows no workloads, engines or flash.

pub mod buffer;
pub mod drive;
pub mod log;
pub mod namespace;
pub mod private;
pub mod shared;
pub mod sharing;
pub mod subsystem;
pub mod tcp;
#[cfg(target_os = "linux")]
pub mod vfio;
#[cfg(not(target_os = "linux"))]
#[path = "vfio_elsewhere.rs"]
pub mod vfio;
