//! Hash-table FTLs: a pair is written to the next free grain, and a hash table on flash has its address.
//!
//! | file | what |
//! |---|---|
//! | [`mod@scheme`], [`original`], [`plus`], [`plus2`], [`hash8`] | the available FTLs, one row and one file each |
//! | [`config`] | their configuration |
//! | [`layout`], [`pair`] | addresses; the bytes of a pair |
//! | [`section`] | the hash table's unit of caching: whole (`original`, `hash8`), live-only (`plus`) or a bucket (`plus2`) |
//! | [`state`] | states of superblocks, kinds of pages, streams |
//! | [`validity`], [`records`] | what is invalid: bitmap (`original`, `hash8`), counts and records (`plus`, `plus2`) |
//! | [`space`] | superblocks, open pages, programs, erases |
//! | [`cache`] | directory and cache of sections |
//! | `core`, `commands` | finding a key; storing, loading, deleting |
//! | `ahead` | dies that a lookup reserves in advance, as an emulator does |
//! | `batch` | several stores and deletes, all or none |
//! | `cursor`, `snapshot` | listing the state at the opening of a cursor |
//! | `gc` | collection of pairs and of sections |
//! | [`protected`] | limits for the power-protected memory of each part |
//! | `fit` | checks a configuration against the drive |
//! | `image`, `change`, `journal`, `recovery` | the image, its changes, applying them, recovery |
//!
//! While a value arrives it is in the write buffer. [`Engine::commit`](crate::Engine::commit) looks the key
//! up, appends the pair to the open page, points the slot at it and drops the old pair; the last three are
//! one step. The buffer is power-protected, so that step makes the store durable; flash is programmed when a
//! page is full.
//!
//! Differences from the published code, with reasons:
//! * A delete leaves a tombstone if a store has ever probed past the slot; published deletes cut the probe
//!   sequence.
//! * 81h is returned before the space is exhausted. Reads, programs and erases of garbage collection all take
//!   their time.
//! * Slots are not kept in the spare area: collection hashes the key it reads (see [`pair`]).
//! * Sections contain their number, by which collection and recovery identify them. In `original` that costs
//!   four of 1024 slots.
//!
//! Lists are in the order of the hash table, not of keys, and start at the slot of a key.

mod about;
mod ahead;
mod batch;
pub mod cache;
mod change;
mod commands;
pub mod config;
mod consistency;
mod core;
mod cursor;
mod fit;
mod gc;
pub mod hash8;
mod image;
mod journal;
pub mod layout;
pub mod original;
pub mod pair;
pub mod plus;
pub mod plus2;
pub mod protected;
pub mod records;
mod recovery;
pub mod scheme;
pub mod section;
mod snapshot;
pub mod space;
pub mod state;
pub mod validity;

pub use commands::{Found, HashEngine, PairPlace};
pub use config::{Accounting, HashConfig, HashCosts, Omissions, SecondChance};
pub use cursor::HashCursor;
pub use fit::of_config;
pub use scheme::{SCHEMES, SchemeRow, scheme};
