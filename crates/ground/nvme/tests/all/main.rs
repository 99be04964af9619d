//! The one integration test binary of the crate: bytes written out by hand, and properties.

mod auth;
mod batch;
mod by_hand;
mod fabrics;
mod layouts;
mod properties;
