//! The one integration test binary of the crate.

mod authentication;
mod by_hand;
#[path = "../../../../host/host/tests/all/clients.rs"]
mod clients;
mod conform;
mod door_faults;
mod drive;
mod ends;
mod flood;
mod functions;
mod futures;
mod guest;
mod hogs;
mod hostile;
mod hostile_guests;
mod hostile_messages;
mod hosts;
mod large;
mod memory;
mod namespaces;
mod one_loop;
mod oracle;
mod pipelines;
mod run_at;
mod runs;
mod served;
mod shares;
mod speed;
mod spread;
#[cfg(feature = "tls")]
mod tls;
mod turns;
mod wire;
