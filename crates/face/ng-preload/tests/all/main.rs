//! The one integration test binary of the crate.

#[path = "../../../../wire/subsystem/tests/all/memory.rs"]
#[allow(dead_code, reason = "a bench has more than one user wants")]
mod memory;
mod on_node;
mod programs;
#[path = "../../../../wire/subsystem/tests/all/run_at.rs"]
mod run_at;
#[path = "../../../../wire/subsystem/tests/all/served.rs"]
#[allow(dead_code, reason = "a bench has more than one user wants")]
mod served;
