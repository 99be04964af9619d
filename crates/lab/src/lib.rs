//! The laboratory: workloads, configuration, and reports.

pub mod config;
pub mod report;
pub mod workload;
