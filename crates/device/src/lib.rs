//! The drive: controller, namespaces and requests in front of an engine on flash. It meets the host on the
//! link and knows nothing of who sits at the other end.
//!
//! Begin reading at [`requests`]: the life of one command.
//!
//! | module | what it is |
//! |---|---|
//! | [`requests`] | one command, from the doorbell to its completion |
//! | [`controller`] | what whoever takes commands shares: costs, Identify |
//! | [`dispatch`] | who takes commands: contexts, or a dispatcher and I/O threads |
//! | [`namespaces`] | what commands are for: pairs in an engine, or blocks |
//! | [`faults`] | rules that strike commands |
//! | [`drive`] | all of it together, engine and flash included |
//!
//! Engines with their page buffer, packing and value log are crate `engines`; flash, media, the FTL and what
//! survives a power cut are crate `flash`.

pub mod controller;
pub mod dispatch;
pub mod drive;
pub mod faults;
pub mod namespaces;
pub mod requests;

pub use drive::{Counters, Drive, DriveConfig, MediaConfig};
