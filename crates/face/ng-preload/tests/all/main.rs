//! The one integration test binary of the crate.

mod on_node;
mod programs;
