//! The laboratory: workloads, configuration, runs and reports.

pub mod config;
pub mod explain;
pub mod many;
pub mod report;
pub mod run;
pub mod setup;
pub mod workload;

/// Revision of the source this program was built from.
pub const REVISION: &str = env!("KVDRIVE_REVISION");
