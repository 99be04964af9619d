//! The one integration-test binary of this crate.

#[path = "all/packing.rs"]
mod packing;

#[path = "all/flash.rs"]
mod flash;
#[path = "all/ftl.rs"]
mod ftl;
