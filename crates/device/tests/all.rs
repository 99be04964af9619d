//! The one integration-test binary of this crate.

#[path = "all/packing.rs"]
mod packing;
