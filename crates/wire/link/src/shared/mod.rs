//! The link between threads: queue pairs and host memory that applications use from any thread, and the drive
//! from its own.
//!
//! ```text
//!   application threads                                  the drive's thread
//!   SharedQueue::submit ──► inbox ──► bell ═══════════► WallSource::poll   stamps what arrived with a model time
//!                                                          └► pump task    at that time: Link queues, firmware wakes
//!   CompletionSink::complete ◄══════ outlet of a queue ◄── Link::complete  in batches, or at the next look
//!   SharedMemory ◄═════════════════════════════════════ DMA through HostMemory
//!   Control::look, change ──► queue ─► bell ══════════► looks between two events; changes are stamped, too
//! ```
//!
//! Entries cross in batches: an inbox is a vector under a lock that is taken once per doorbell, and the drive
//! reads one counter to see whether any inbox is filled. A completion slot counts as released the moment its
//! completion is posted, so the time at which the host reads completions does not influence the drive: the events of a
//! run are a function of the stamped arrivals and of the bytes that DMA read, and [`crate::recording`] keeps both.
//!
//! An unpaced drive may do without a thread ([`serve_here`]): ringing its bell executes the due events in the ringing
//! thread.
//!
//! A host creates and deletes its I/O queues by commands of the admin queue. Such a command has no address of a ring in
//! memory. Instead, rings are registered here under a number ([`SharedLink::open_rings`]), by which the drive finds
//! them when entries arrive. A network transport creates queues by a call.
//!
//! Not in this module: command identifiers, buffers per command, waiting (crate `host`, `threaded`).

mod carrier;
mod control;
mod here;
mod link;
mod memory;
mod queue;
mod server;
mod source;
mod thread;
#[cfg(test)]
mod threads;

pub use crate::served::{BuildError, Built, Controlled, Outcome, RunEnd};
pub use carrier::OtherThread;
pub use control::Control;
pub use here::serve_here;
pub use link::{NoQueue, PowerOff, SharedLink};
pub use memory::{SharedBuffer, SharedMemory};
pub use queue::{CompletionSink, SharedQueue};
pub use server::{Server, ServerConfig};
pub use thread::{DriveLoop, Serving, Wake, serve_beside, serve_thread};
