//! Every store of the table, on pages in memory.

mod damage;
mod edges;
mod files;
mod ground;
mod history;
mod oracle;
mod put_back;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod shared;
mod small;
mod together;
mod waking;
