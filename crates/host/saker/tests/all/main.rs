//! The one integration test binary of the crate.

mod cache;
mod counted;
mod drive;
mod memory;
mod oracle;
mod races;
mod threaded;
mod transactions;
