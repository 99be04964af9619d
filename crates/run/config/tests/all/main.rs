//! The crate's one integration-test binary.

mod capacity;
mod config;
mod options;
mod workloads;
