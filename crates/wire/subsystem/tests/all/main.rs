//! The one integration test binary of the crate.

mod authentication;
mod blocks;
mod by_hand;
mod conform;
mod door_faults;
mod drive;
mod ends;
mod flood;
mod functions;
mod futures;
mod hogs;
mod hostile;
mod hostile_guests;
mod hostile_messages;
mod hosts;
mod large;
mod namespaces;
mod one_loop;
mod oracle;
mod pipelines;
mod runs;
mod shares;
mod speed;
mod spread;
#[cfg(feature = "tls")]
mod tls;
mod turns;
