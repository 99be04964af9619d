//! The crate's one integration-test binary.

mod blend;
mod claims;
mod config;
mod drive;
mod experiments;
mod explain;
mod hash_runs;
mod hostkv_runs;
mod images;
mod load;
mod numbers;
mod revision;
mod saker_runs;
mod scans;
mod sweeps;
mod traces;
mod transactions;
mod tune;
mod wall_files;
mod wall_runs;
mod windows;
mod workloads;
