//! SAKER: a host layer that batches small writes to a KV drive and caches small reads (Zhong, Wang, Jiang: "SAKER: A
//! Software Accelerated Key-value Service via the NVMe Interface", SYSTOR'25).
//!
//! Small writes are collected in a *container* and go to the drive as one batch command; small reads are
//! answered from pending writes or from a read cache.
//!
//! ```text
//!  thread 1: Client ── container ──┐            ┌── batches under way ──► queue pair of the thread
//!  thread 2: Client ── container ──┤ are in the ├── ...
//!                                  ▼            ▼
//!                     PendingTable: key -> its newest place      ReadCache
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | one thread's view: writes, reads, sync, completions |
//! | [`runner`] | a request from its call to its answer: the loop that every runner shares |
//! | [`batch`] | a container while it is filled, a batch from then on |
//! | `table` | where the newest pending version of a key is; one lock a bucket |
//! | [`cache`] | the read cache; its eviction policy can be replaced |
//! | [`transaction`] | reads that are recorded, writes that are sent together |
//! | [`range`] | pending writes, merged with a drive's cursor |
//! | [`threaded`] | a runner: threads in front of any drive with queues |
//! | [`steps`] | the steps of the work, for a model that charges time for them |
//! | [`counters`] | what was counted |
//!
//! **No I/O, no clock, no `async`.** A call says what its runner must do: nothing, wait for a batch, ask the
//! drive, send a bypass; and after every call the runner sends what [`Client::next_batch`] hands out.
//! Completions come in by [`Client::complete`]. One runner charges the steps to model cores, another one is
//! threads; both run this code, with these locks.
//!
//! Invariants under every runner:
//!
//! * **Order.** NVMe keeps no order between commands under way. A batch with a key is therefore handed out
//!   only after every older batch with that key has been answered, of any client; and a client that writes a
//!   key of another client's open container closes that container first. So the version that entered the
//!   pending table last is the one that the drive ends with. Batches wait only for batches that were closed
//!   before them, so there is no circle.
//! * **Pending writes are read**, also pending deletes.
//! * **A write is volatile until `sync`**, which returns after all earlier writes of this client have been
//!   answered, and names every request that failed. It sends no command of its own: a drive's answer means
//!   that the request is durable.
//! * **A fill that lost against a write does not enter the cache.**
//!
//! Locks nest one way: bucket, sequence, open batch, closed batch; the cache's are innermost. None is held
//! when a call returns.

pub mod batch;
pub mod cache;
pub mod client;
mod config;
pub mod counters;
pub mod range;
mod remembered;
pub mod runner;
mod saker;
pub mod steps;
mod sync;
mod table;
pub mod threaded;
pub mod transaction;
mod writer;

pub use batch::{Batch, Payload, Whereabouts};
pub use cache::{CacheConfig, Charge};
pub use client::{Client, Question, Read, Sync, Write};
pub use config::{BatchSize, Containers, SakerConfig, SakerConfigError};
pub use runner::Runner;
pub use saker::Saker;
pub use steps::{NoSteps, Step, Steps};
pub use transaction::{Commit, Ending, Transaction};
pub use writer::{ClientId, Failure};

#[cfg(test)]
mod shuttled;
