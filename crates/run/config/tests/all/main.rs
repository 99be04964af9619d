//! The crate's one integration-test binary.

mod config;
mod options;
mod workloads;
