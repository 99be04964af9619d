//! RocksDB itself, Debian's library, on pages: the reference for `lsmtree`, and a store for programs in wall
//! time. Feature `rocksdb`; `apt-get install librocksdb-dev`.
//!
//! ```text
//!   RocksDb ─► shim.cc: Database ─► RocksDB with its own threads
//!                                     │ rocksdb::FileSystem (shim.cc)
//!   pages ◄─ files ([`crate::files`]) ◄─ Disk
//! ```
//!
//! It is not a row of [`crate::STORES`]: its threads are the machine's and have no model time, and its skip
//! lists derive heights from a thread's identity, so two runs differ.

mod bridge;

use std::sync::Arc;

use crate::files::{FileId, Files};
use crate::lsmtree::LsmtreeOptions;
use crate::pages::{PageStore, Purpose};
use crate::store::StoreError;
use bridge::{Database, FilePurpose, OpenOptions};

/// Pages that threads of the machine call at once, all of them as thread 0.
pub trait SharedPages: PageStore + Send + Sync {}

impl<P: PageStore + Send + Sync> SharedPages for P {}

/// The files that RocksDB calls.
struct Disk(Arc<Files<Arc<dyn SharedPages>>>);

/// Why an operation of RocksDB failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RocksDbError {
    /// Its files failed.
    #[error(transparent)]
    Files(#[from] StoreError),
    /// The message of RocksDB.
    #[error("{0}")]
    Said(String),
}

impl From<cxx::Exception> for RocksDbError {
    fn from(exception: cxx::Exception) -> RocksDbError {
        RocksDbError::Said(exception.what().to_owned())
    }
}

/// Options of RocksDB: those of `lsmtree`, with the same meaning, and those that `lsmtree` does not have.
/// Compression is off, and all others have RocksDB's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct RocksDbOptions {
    /// Options that both have. `background` and `row_bytes` have no effect: RocksDB has threads of its own,
    /// and its own charge for rows.
    pub shared: LsmtreeOptions,
    /// A block never crosses a page boundary: it ends if the next pair would not fit.
    pub block_align: bool,
    /// Merges end their output files at boundaries of the level below, if one is near.
    pub level_compaction_dynamic_file_size: bool,
}

impl From<LsmtreeOptions> for RocksDbOptions {
    fn from(shared: LsmtreeOptions) -> RocksDbOptions {
        RocksDbOptions { shared, block_align: false, level_compaction_dynamic_file_size: true }
    }
}

impl RocksDbOptions {
    /// The options by RocksDB's names.
    fn by_name(&self) -> OpenOptions {
        let RocksDbOptions { shared, block_align, level_compaction_dynamic_file_size } = self;
        OpenOptions {
            write_buffer_size: shared.write_buffer_size,
            max_write_buffer_number: shared.max_write_buffer_number,
            level0_file_num_compaction_trigger: shared.level0_file_num_compaction_trigger,
            level0_slowdown_writes_trigger: shared.level0_slowdown_writes_trigger,
            level0_stop_writes_trigger: shared.level0_stop_writes_trigger,
            delayed_write_rate: shared.delayed_write_rate,
            max_bytes_for_level_base: shared.max_bytes_for_level_base,
            max_bytes_for_level_multiplier: shared.max_bytes_for_level_multiplier,
            target_file_size_base: shared.target_file_size_base,
            block_size: shared.block_size,
            block_align: *block_align,
            level_compaction_dynamic_file_size: *level_compaction_dynamic_file_size,
            bloom_bits: shared.bloom_bits,
            row_cache_bytes: shared.row_cache_bytes,
            block_cache_bytes: shared.block_cache_bytes,
            wal: shared.wal,
        }
    }
}

/// RocksDB's version.
pub fn version() -> String {
    bridge::version()
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A database of RocksDB. Threads may share it.
pub struct RocksDb {
    database: cxx::UniquePtr<Database>,
    /// `None`: RocksDB's own files in memory.
    files: Option<Arc<Files<Arc<dyn SharedPages>>>>,
}

impl RocksDb {
    /// Opens the database on these pages; pages that are all zero get an empty one.
    ///
    /// # Errors
    /// The pages have other content, or RocksDB's message.
    pub fn open(pages: Arc<dyn SharedPages>, options: &RocksDbOptions) -> Result<RocksDb, RocksDbError> {
        let files = Arc::new(Files::open_on(pages)?);
        let database = bridge::open_database(Box::new(Disk(files.clone())), &options.by_name())?;
        Ok(RocksDb { database, files: Some(files) })
    }

    /// Opens an empty database on RocksDB's files in memory (`env/mock_env.h`), for measurements of RocksDB's
    /// own work.
    ///
    /// # Errors
    /// RocksDB's message.
    pub fn in_memory(options: &RocksDbOptions) -> Result<RocksDb, RocksDbError> {
        Ok(RocksDb { database: bridge::open_in_memory(&options.by_name())?, files: None })
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("it is there until it is closed")
    }

    /// Gives `key` this value; with `sync` this put and all earlier ones are durable when it returns.
    ///
    /// # Errors
    /// RocksDB's message; the calls below have the same error.
    pub fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), RocksDbError> {
        Ok(self.database().put(key, value, sync)?)
    }

    /// Deletes `key`, which need not exist.
    pub fn delete(&self, key: &[u8], sync: bool) -> Result<(), RocksDbError> {
        Ok(self.database().remove(key, sync)?)
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RocksDbError> {
        let mut value = Vec::new();
        Ok(self.database().get(key, &mut value)?.then_some(value))
    }

    /// Does `key` have a value? The value is read as in [`RocksDb::get`], but not returned.
    pub fn find(&self, key: &[u8]) -> Result<bool, RocksDbError> {
        Ok(self.database().find(key)?)
    }

    /// The first pair at or after `from`.
    pub fn seek(&self, from: &[u8]) -> Result<Option<Pair>, RocksDbError> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        Ok(self.database().seek(from, &mut key, &mut value)?.then_some((key, value)))
    }

    /// Makes all puts and deletes durable.
    pub fn sync(&self) -> Result<(), RocksDbError> {
        Ok(self.database().sync()?)
    }

    /// Writes the memtable to a table.
    pub fn flush(&self) -> Result<(), RocksDbError> {
        Ok(self.database().flush()?)
    }

    /// Bytes of the row cache, as RocksDB charges them.
    pub fn row_cache_bytes(&self) -> u64 {
        self.database().row_cache_bytes()
    }

    /// Waits until RocksDB's threads are idle.
    pub fn wait_until_idle(&self) -> Result<(), RocksDbError> {
        Ok(self.database().wait_until_idle()?)
    }

    /// A property of RocksDB, such as `rocksdb.num-files-at-level0`; `None`: there is no such property.
    pub fn property(&self, name: &str) -> Option<String> {
        Some(self.database().property(name)).filter(|text| !text.is_empty())
    }

    /// Closes the database and its log; all puts are durable then.
    ///
    /// # Errors
    /// The pages failed.
    pub fn close(self) -> Result<(), RocksDbError> {
        let RocksDb { database, files } = self;
        drop(database);
        Ok(files.map_or(Ok(()), |files| files.commit())?)
    }
}

/// The cache of RocksDB's rows alone, without a database: its `LRUCache`, with keys and charges of its row cache.
pub struct RocksDbRows(cxx::UniquePtr<bridge::RowCache>);

impl RocksDbRows {
    /// An empty cache of `bytes` bytes.
    pub fn new(bytes: u64) -> RocksDbRows {
        RocksDbRows(bridge::new_row_cache(bytes))
    }

    /// Copies the row of a key into `value`; whether there is one.
    ///
    /// # Errors
    /// RocksDB's message.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, RocksDbError> {
        Ok(self.0.get_row(key, value)?)
    }

    /// Inserts a row, for which the cache evicts others.
    ///
    /// # Errors
    /// RocksDB's message.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), RocksDbError> {
        Ok(self.0.insert(key, value)?)
    }

    /// Bytes of all rows, as RocksDB charges them.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

fn purpose(why: FilePurpose) -> Purpose {
    match why {
        FilePurpose::Wal => Purpose::Wal,
        FilePurpose::Table => Purpose::Table,
        FilePurpose::Compaction => Purpose::Compaction,
        FilePurpose::Lookup => Purpose::Lookup,
        FilePurpose::Recovery => Purpose::Recovery,
        _ => Purpose::Manifest,
    }
}

/// [`Files`], for C++.
impl Disk {
    fn create(&self, name: &str) -> u64 {
        self.0.create(name).0
    }

    fn open(&self, name: &str) -> u64 {
        self.0.open(name).map_or(0, |file| file.0)
    }

    fn close(&self, file: u64) {
        self.0.close(FileId(file));
    }

    fn append(&self, file: u64, bytes: &[u8], why: FilePurpose) -> Result<(), StoreError> {
        self.0.append(FileId(file), bytes, purpose(why))
    }

    fn read(&self, file: u64, at: u64, out: &mut [u8], why: FilePurpose) -> Result<usize, StoreError> {
        self.0.read(FileId(file), at, out, purpose(why))
    }

    fn sync(&self, file: u64) -> Result<(), StoreError> {
        self.0.sync(FileId(file))
    }

    fn finish(&self, file: u64, why: FilePurpose) -> Result<(), StoreError> {
        self.0.finish(FileId(file), purpose(why))
    }

    fn commit(&self) -> Result<(), StoreError> {
        self.0.commit()
    }

    fn length(&self, file: u64) -> u64 {
        self.0.length(FileId(file))
    }

    fn find(&self, name: &str) -> i64 {
        self.0.find(name).map_or(-1, |bytes| bytes as i64)
    }

    fn rename(&self, name: &str, to: &str) -> bool {
        self.0.rename(name, to)
    }

    fn remove(&self, name: &str) -> bool {
        self.0.remove(name)
    }

    fn list(&self, prefix: &str) -> Vec<String> {
        self.0.list(prefix)
    }

    fn free_bytes(&self) -> u64 {
        self.0.free_bytes()
    }
}
