//! The one integration test binary of the crate.

#[path = "../../../../wire/subsystem/tests/all/memory.rs"]
#[allow(dead_code, reason = "a bench has more than one user wants")]
mod memory;
mod programs;
#[path = "../../../../wire/subsystem/tests/all/served.rs"]
#[allow(dead_code, reason = "a bench has more than one user wants")]
mod served;
