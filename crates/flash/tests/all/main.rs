//! The one integration-test binary of this crate.

mod flash;
mod ftl;
