//! The drive: controller, namespaces and requests in front of an engine on flash. It meets the host on the
//! link and knows nothing of who sits at the other end.
//!
//! Begin reading at [`requests`]: the life of one command.
//!
//! | module | what it is |
//! |---|---|
//! | [`drive`] | all of it together, engine and flash included |
//! | [`engines`] | the engines that there are |
//! | [`dispatch`] | who takes commands: contexts, or a dispatcher and I/O threads |
//! | [`requests`] | one command, from the doorbell to its completion |
//! | [`faults`] | rules that strike commands |
//! | [`controller`] | what whoever takes commands shares; admin commands |
//! | [`namespaces`] | what commands are for: pairs in an engine, or blocks |
//! | [`answers`], [`config`] | what all of them stand on |
//!
//! Each knows those below it.
//!
//! Engines with their page buffer, packing and value log are crate `engines`; flash, media, the FTL and what
//! survives a power cut are crate `flash`.

pub mod answers;
pub mod config;
pub mod controller;
pub mod dispatch;
pub mod drive;
pub mod engines;
pub mod faults;
pub mod namespaces;
pub mod requests;

pub use drive::{Counters, Drive, DriveConfig, MediaConfig};
