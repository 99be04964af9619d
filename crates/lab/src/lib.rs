//! The laboratory: workloads, configuration, runs and reports.

pub mod bench;
pub mod calibrate;
pub mod claims;
pub mod config;
pub mod crash;
pub mod experiments;
pub mod explain;
pub mod faults;
pub mod figure;
pub mod html;
pub mod image;
pub mod input;
pub mod many;
mod names;
pub mod output;
pub mod quantity;
pub mod report;
pub mod run;
pub mod setup;
pub mod sweep;
pub mod text;
pub mod tune;
pub mod wall;
pub mod workload;

/// Revision of the source this program was built from; one that is `dirty` has a digest of what differs.
pub const REVISION: &str = env!("KVDRIVE_REVISION");
/// Files of the source that were not as in the revision; none of one that is clean.
pub const DIFFERS: &str = env!("KVDRIVE_DIFFERS");
