//! What tests of several crates stand on: a small drive with an oracle of its pairs, a namespace in memory that can be held
//! up, a server on a loopback socket, a guest with rings of its own, units of NVMe/TCP byte by byte, and the calls that
//! every client answers alike.
//!
//! It is for tests alone: rigs panic where a test would, and no crate depends on them outside its tests. A rig that one
//! crate needs stays with that crate's tests.

#![allow(missing_docs, reason = "parts of a rig are named by what they are")]

pub mod clients;
pub mod drive;
#[cfg(target_os = "linux")]
pub mod guest;
pub mod memory;
pub mod run_at;
pub mod served;
pub mod wire;
