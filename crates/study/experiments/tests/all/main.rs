//! The crate's one integration-test binary.

mod captions;
mod sweeps;
