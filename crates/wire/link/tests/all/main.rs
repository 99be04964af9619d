//! The crate's one integration-test binary.

mod functions;
mod methods;
mod prp;
mod queues;
mod scattered;
mod shared;
mod windows;
mod wire;
