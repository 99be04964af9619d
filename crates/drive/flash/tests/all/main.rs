//! The one integration-test binary of this crate.

mod bad_blocks;
mod flash;
mod ftl;
mod images;
mod placement;
