//! Key-value stores that need only pages.
//!
//! A store keeps pairs in numbered pages ([`PageStore`]) and reports the work it does ([`Cpu`]); it does not
//! know on which side of the wire it runs. On a host, its pages are blocks of a drive and its work takes an
//! application's time; in a drive, they are logical pages of the flash translation layer, and the work takes
//! time of a firmware core.
//!
//! A store is plain functions. A call to its pages or processor may suspend its caller, and other threads may
//! be inside the same store in the meantime: so no `RefCell` is borrowed across such a call. Each store
//! ensures that by having two parts: a *state* whose methods never suspend, and the store around it, which
//! borrows the state for one method call at a time.
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

use kvdrive_declare::Section;

pub use cpu::{Cpu, Step, StepCosts, StepSettings, Thread, steps_ns};
pub use pages::{Page, PageError, PageId, PageStore, Purpose, Trouble, Writing};
pub use store::{
    Applied, BACKGROUND_SLICE_NS, BACKGROUND_THREADS, Background, Cursor, Ground, MAX_VALUE_BYTES, Recovered,
    Space, Store, StoreError, StoreRequest, do_background, most_mark_bytes, run_background,
};
pub use value::{Part, StoredValue, Value};

/// Options of every store: a field for each row of [`STORES`].
#[derive(Clone, Debug, Default, PartialEq, Section)]
#[section("store")]
pub struct StoreOptions {
    /// Options of `hashlog`.
    #[setting(part)]
    pub hashlog: hashlog::HashlogOptions,
    /// Options of `btree`.
    #[setting(part)]
    pub btree: btree::BtreeOptions,
    /// Options of `lsmtree`.
    #[setting(part)]
    pub lsmtree: lsmtree::LsmtreeOptions,
}

/// A row of [`STORES`].
pub struct StoreRow {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Sections of a configuration that it uses in a drive, including those of its pages and of its steps.
    pub sections: &'static [&'static str],
    /// The counters ([`Store::counts`]) that grow when it reclaims room while cursors are open.
    pub reclaims: &'static [&'static str],
    /// The kinds of work it does.
    pub steps: &'static [Step],
    /// Checks the options for this page size and these numbers of pages and threads. Errors: a line that
    /// begins with the key of an option.
    pub check: fn(&StoreOptions, page_bytes: u32, pages: u64, threads: u32) -> Result<(), String>,
    /// Computes the options that are 0 and depend on the pages.
    pub fit: fn(&mut StoreOptions, page_bytes: u32, pages: u64, threads: u32),
    /// The options, by key, that decide the layout of pages: a store with other values cannot read them.
    pub layout: fn(&StoreOptions) -> Vec<(&'static str, String)>,
    /// Pages of a segment of its log, if it has one: it trims the pages `n * pages ..` of a segment together, and writes
    /// them with [`Purpose::Log`] or [`Purpose::Cleaning`].
    pub log_segment_pages: fn(&StoreOptions, page_bytes: u32) -> Option<u32>,
    /// Key of the option for the bytes of pairs cached for reads, if it has such a cache.
    pub read_cache: Option<&'static str>,
    /// The cores on which its options place background work, if it has such work.
    pub background: fn(&StoreOptions) -> Option<Background>,
    /// Builds one with checked options. [`Store::recover`] has to be its first call.
    pub make: fn(&StoreOptions, Ground) -> Rc<dyn Store>,
}

/// Every store there is.
pub static STORES: &[StoreRow] = &[hashlog::ROW, lsmtree::ROW, btree::ROW];

/// The row with this name.
pub fn store_row(name: &str) -> Option<&'static StoreRow> {
    STORES.iter().find(|row| row.name == name)
}
