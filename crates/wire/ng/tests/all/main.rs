//! The one integration test binary of the crate.

mod supervised;
mod sysfs;
