//! Functions between Rust and C++. `cxx` generates both sides of each function and checks that they agree.
//!
//! The generated code is unsafe, as every call between the two languages is; only this module may contain
//! such code.

#![allow(unsafe_code)]

use super::Disk;

#[cxx::bridge(namespace = "kvdrive")]
#[allow(missing_docs)]
mod ffi {
    /// The purpose of pages that are read or written, as far as it follows from the file.
    #[derive(Debug)]
    enum FilePurpose {
        Wal,
        Table,
        Compaction,
        Manifest,
        Lookup,
        Recovery,
    }

    /// Options, by RocksDB's names.
    #[derive(Debug)]
    struct OpenOptions {
        write_buffer_size: u64,
        max_write_buffer_number: u32,
        level0_file_num_compaction_trigger: u32,
        level0_slowdown_writes_trigger: u32,
        level0_stop_writes_trigger: u32,
        delayed_write_rate: u64,
        max_bytes_for_level_base: u64,
        max_bytes_for_level_multiplier: u32,
        target_file_size_base: u64,
        block_size: u32,
        block_align: bool,
        level_compaction_dynamic_file_size: bool,
        bloom_bits: u32,
        row_cache_bytes: u64,
        block_cache_bytes: u64,
        wal: bool,
    }

    extern "Rust" {
        type Disk;
        /// A new file, open.
        fn create(self: &Disk, name: &str) -> u64;
        /// Opens a file; 0: it does not exist.
        fn open(self: &Disk, name: &str) -> u64;
        fn close(self: &Disk, file: u64);
        fn append(self: &Disk, file: u64, bytes: &[u8], why: FilePurpose) -> Result<()>;
        fn read(self: &Disk, file: u64, at: u64, out: &mut [u8], why: FilePurpose) -> Result<usize>;
        fn sync(self: &Disk, file: u64) -> Result<()>;
        fn finish(self: &Disk, file: u64, why: FilePurpose) -> Result<()>;
        fn commit(self: &Disk) -> Result<()>;
        fn length(self: &Disk, file: u64) -> u64;
        /// Bytes of the file of this name; -1: it does not exist.
        fn find(self: &Disk, name: &str) -> i64;
        fn rename(self: &Disk, name: &str, to: &str) -> bool;
        fn remove(self: &Disk, name: &str) -> bool;
        fn list(self: &Disk, prefix: &str) -> Vec<String>;
        fn free_bytes(self: &Disk) -> u64;
    }

    unsafe extern "C++" {
        include!("kvdrive-store/src/rocksdb/shim.h");
        type Database;
        fn open_database(disk: Box<Disk>, options: &OpenOptions) -> Result<UniquePtr<Database>>;
        fn open_in_memory(options: &OpenOptions) -> Result<UniquePtr<Database>>;
        fn version() -> String;
        fn put(self: &Database, key: &[u8], value: &[u8], sync: bool) -> Result<()>;
        fn remove(self: &Database, key: &[u8], sync: bool) -> Result<()>;
        fn get(self: &Database, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
        fn find(self: &Database, key: &[u8]) -> Result<bool>;
        fn seek(self: &Database, from: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool>;
        fn sync(self: &Database) -> Result<()>;
        fn wait_until_idle(self: &Database) -> Result<()>;
        fn flush(self: &Database) -> Result<()>;
        fn property(self: &Database, name: &str) -> String;
        fn row_cache_bytes(self: &Database) -> u64;
        type RowCache;
        fn new_row_cache(bytes: u64) -> UniquePtr<RowCache>;
        #[rust_name = "get_row"]
        fn get(self: &RowCache, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
        fn insert(self: &RowCache, key: &[u8], value: &[u8]) -> Result<()>;
        fn bytes(self: &RowCache) -> u64;
    }
}

pub use ffi::{
    Database, FilePurpose, OpenOptions, RowCache, new_row_cache, open_database, open_in_memory, version,
};

// SAFETY: any thread may call a `rocksdb::DB`, and several at once (its documentation says so of all calls
// that `Database` makes); `Database` has no other state that changes. Its file system is `Sync` in Rust.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}
