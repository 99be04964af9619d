//! The drive: controller, namespaces and requests in front of an engine on flash. Its interface to hosts is
//! the link; it does not know what is at the other end.
//!
//! Begin reading at [`requests`]: the life of one command.
//!
//! | module | what it is |
//! |---|---|
//! | [`drive`] | a whole drive, engine and flash included |
//! | [`engines`] | the table of engines |
//! | [`dispatch`] | how commands are taken: contexts, or a dispatcher and I/O threads |
//! | [`requests`] | one command, from the doorbell to its completion |
//! | [`faults`] | rules that strike commands |
//! | [`controller`] | state that all contexts and threads share; admin commands |
//! | [`namespaces`] | what commands act on: pairs in an engine, or blocks |
//! | [`answers`], [`config`] | used by all of the above |
//!
//! Each module knows only those below it.
//!
//! Engines with their page buffer, packing and value log are crate `engines`; flash, media, the FTL and what
//! survives a power cut are crate `flash`.

pub mod answers;
pub mod config;
mod contexts;
pub mod controller;
pub mod dispatch;
pub mod drive;
pub mod engines;
pub mod faults;
pub mod namespaces;
pub mod requests;

pub use drive::{Drive, DriveConfig, MediaConfig};
