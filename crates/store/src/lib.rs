//! Key-value stores that only need pages.
//!
//! A store keeps pairs in numbered pages ([`PageStore`]) and says what work it does ([`Cpu`]); it does not
//! know on which side of the wire it runs. On a host its pages are blocks of a drive and its work an
//! application's time; in a drive they are logical pages of the flash translation layer and the time of a
//! firmware core.
//!
//! Stores are plain functions. A call of a page store or a processor may suspend whoever makes it, and others
//! are inside the same store meanwhile: so no `RefCell` is borrowed across such a call. Each store keeps to
//! that by being two things: a *state* whose methods never suspend, and the store around it, which borrows the
//! state for as long as it takes to ask it one thing.
//!
//! A new store is one file or folder here with its options, and one row in [`STORES`].

pub mod btree;
pub mod cpu;
pub mod files;
mod frame;
pub mod hashlog;
mod key_hash;
pub mod lsmtree;
pub mod memory;
pub mod pages;
mod records;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
mod space;
pub mod store;
pub mod value;

use std::rc::Rc;

use serde::{Deserialize, Serialize};

pub use cpu::{Cpu, Step, StepCosts, Thread, steps_ns};
pub use pages::{Page, PageError, PageId, PageStore, Purpose, Trouble, Writing};
pub use store::{
    Applied, BACKGROUND_SLICE_NS, BACKGROUND_THREADS, Background, Cursor, Ground, MAX_VALUE_BYTES, Reclaim,
    Reclaimed, Recovered, Request, Space, Store, StoreError, do_background, most_mark_bytes, run_background,
};
pub use value::{Kept, Part, Value};

/// Options of every store: a field for each row of [`STORES`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreOptions {
    /// Of `hashlog`.
    pub hashlog: hashlog::HashlogOptions,
    /// Of `btree`.
    pub btree: btree::BtreeOptions,
    /// Of `lsmtree`.
    pub lsmtree: lsmtree::LsmtreeOptions,
}

/// A row of [`STORES`].
pub struct StoreRow {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Sections of a configuration that it looks at in a drive, those of its pages and of its steps among them.
    pub sections: &'static [&'static str],
    /// The ways in which it gets room back while cursors are open, all of which it counts
    /// ([`Store::reclaimed`]).
    pub reclaims: &'static [Reclaim],
    /// The kinds of work it does.
    pub steps: &'static [Step],
    /// Are these options possible on so many pages of so many bytes, with so many threads? If not, a line that
    /// begins with the key of the option.
    pub check: fn(&StoreOptions, page_bytes: u32, pages: u64, threads: u32) -> Result<(), String>,
    /// Gives the options that are 0 and follow the pages their values.
    pub fit: fn(&mut StoreOptions, page_bytes: u32, pages: u64, threads: u32),
    /// The options, by their keys, that decide where things lie on pages: a store that has others cannot read
    /// them.
    pub layout: fn(&StoreOptions) -> Vec<(&'static str, String)>,
    /// The option, by its key, that says how many bytes of pairs it keeps for reads, if it has such a cache.
    pub read_cache: Option<&'static str>,
    /// On whose cores its options want background work to be done, if it has such work.
    pub background: fn(&StoreOptions) -> Option<Background>,
    /// Makes one whose options have been checked. [`Store::recover`] has to be its first call.
    pub make: fn(&StoreOptions, Ground) -> Rc<dyn Store>,
}

/// Every store there is.
pub const STORES: &[StoreRow] = &[hashlog::ROW, lsmtree::ROW, btree::ROW];

/// The row with this name.
pub fn store_row(name: &str) -> Option<&'static StoreRow> {
    STORES.iter().find(|row| row.name == name)
}
