//! The crate's one integration-test binary.

mod executor;
mod locks;
mod numbers;
mod occupation;
mod programs;
mod time_share;
mod wall;
