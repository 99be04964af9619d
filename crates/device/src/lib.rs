//! The drive: controller, page buffer, packing, engines, flash translation and flash. It meets the host on
//! the link and knows nothing of who sits at the other end.
//!
//! Begin reading at [`requests`]: the life of one command.
//!
//! | module | what it is |
//! |---|---|
//! | [`requests`] | one command, from the doorbell to its completion |
//! | [`controller`] | what whoever takes commands shares: costs, Identify |
//! | [`dispatch`] | who takes commands: contexts, or a dispatcher and I/O threads |
//! | [`namespaces`] | what commands are for: pairs in an engine, or blocks |
//! | [`firmware`] | its cores, and which takes what kind of step |
//! | [`engines`] | index and value placement, the seam; [`engines::lsm`] and the FTLs of [`engines::hash`] |
//! | [`value_log`], [`page_buffer`], [`packing`] | where value bytes go |
//! | [`ftl`] | logical pages on flash |
//! | [`flash`] | channels, dies, blocks, pages: time and content; the media |
//! | [`faults`] | rules by which flash and commands fail |
//! | [`power`] | what survives a power cut |
//! | [`identity`] | who a drive is |
//! | [`drive`] | all of it together |

pub mod controller;
pub mod dispatch;
pub mod drive;
pub mod engines;
pub mod faults;
pub mod firmware;
pub mod flash;
pub mod ftl;
pub mod identity;
pub mod namespaces;
pub mod packing;
pub mod page_buffer;
pub mod power;
pub mod requests;
pub mod value_log;

pub use drive::{Counters, Drive, DriveConfig, MediaConfig};
pub use identity::Identity;
