//! The one integration-test binary of this crate.

mod bad_blocks;
mod file_cache;
mod flash;
mod ftl;
mod images;
mod packed_pages;
mod placement;
