//! The crate's one integration-test binary.

mod drive;
mod explain;
mod images;
mod windows;
