//! The crate's one integration-test binary.

mod config;
mod workloads;
