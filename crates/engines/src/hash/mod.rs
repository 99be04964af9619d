//! Hash-table FTLs: pairs lie where the next grain is free, a hash table on flash says where.
//!
//! | file | what |
//! |---|---|
//! | [`mod@scheme`], [`original`], [`plus`], [`plus2`] | the FTLs there are, one row and one file each |
//! | [`config`] | what they are configured with |
//! | [`layout`], [`pair`] | addresses; the bytes of a pair |
//! | [`section`] | the hash table's unit of caching: whole (`original`), live-only (`plus`) or a bucket (`plus2`) |
//! | [`validity`], [`records`] | what is invalid: bitmap (`original`), counts and records (`plus`, `plus2`) |
//! | [`space`] | superblocks, open pages, programs, erases |
//! | [`cache`] | directory and cache of sections |
//! | `core`, `commands` | finding a key; storing, loading, deleting |
//! | `ahead` | dies that a lookup takes before it comes to them, as an emulator does |
//! | `batch` | several stores and deletes, all or none |
//! | `cursor`, `snapshot` | listing the state at a cursor's creation |
//! | `gc` | collection of pairs and of sections |
//! | [`protected`] | how much power-protected memory it takes at most |
//! | `fit` | a configuration held against the drive |
//! | `image`, `change`, `journal`, `recovery` | the protected image, its changes and what applies them, and what is rebuilt from flash |
//!
//! A value is kept in the write buffer while it arrives. [`Engine::commit`](crate::Engine::commit)
//! looks the key up, appends the pair to the open page, points the slot at it and drops the old pair, the
//! last three in one step. The buffer is power-protected, so that step is the acknowledgement; flash is
//! programmed when a page is full.
//!
//! What is different from the published code, and why:
//! * Deletes leave a tombstone where a store has ever probed past the slot; published deletes cut the probe
//!   sequence.
//! * 81h comes before the space is exhausted. Garbage collection's reads, programs and erases all take their
//!   time.
//! * Slots are not kept in the spare area: collection hashes the key it reads (see [`pair`]).
//! * Sections carry their number, so that collection and recovery know them. `original` pays four of 1024
//!   slots for it.
//!
//! Listing is in the order of the hash table, not of the keys; it begins at a key's slot.

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
pub mod validity;

pub use commands::{Found, HashEngine, Place};
pub use config::{Accounting, HashConfig, HashCosts, Omissions, SecondChance};
pub use cursor::HashCursor;
pub use fit::{check, make, of_config};
pub use scheme::{SCHEMES, SchemeRow, scheme};
