//! The one integration test binary of the crate.

mod by_hand;
mod drive;
mod hostile;
mod hosts;
mod memory;
mod one_loop;
mod oracle;
mod served;
mod speed;
mod wire;
