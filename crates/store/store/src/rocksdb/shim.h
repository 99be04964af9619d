// RocksDB over files of ours: the functions that Rust calls (`bridge.rs`). The Rust functions that RocksDB calls are used in
// shim.cc.
#pragma once

#include <cstdint>
#include <memory>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>

#include "rust/cxx.h"

namespace kvdrive {

struct Disk;
struct OpenOptions;

using Bytes = rust::Slice<const uint8_t>;

// A database and the file system it is on. Any thread may call it.
class Database {
 public:
  Database(std::unique_ptr<rocksdb::Env> env, std::unique_ptr<rocksdb::DB> db,
           std::shared_ptr<rocksdb::Cache> rows, bool wal);
  ~Database();

  void put(Bytes key, Bytes value, bool sync) const;
  void remove(Bytes key, bool sync) const;
  // False: there is no such key.
  bool get(Bytes key, rust::Vec<uint8_t>& value) const;
  // As get, but the value is not returned.
  bool find(Bytes key) const;
  // The first pair whose key is `from` or follows it. False: there is none.
  bool seek(Bytes from, rust::Vec<uint8_t>& key, rust::Vec<uint8_t>& value) const;
  // Makes all earlier puts and removes durable.
  void sync() const;
  // Writes the memtable to a table.
  void flush() const;
  // Returns when no thread of RocksDB has anything to write or to merge.
  void wait_until_idle() const;
  // A property as text, empty if there is none.
  rust::String property(rust::Str name) const;
  // Bytes of the row cache, as the cache charges them.
  uint64_t row_cache_bytes() const;

 private:
  uint64_t number(const std::string& property) const;
  rocksdb::WriteOptions write_options(bool sync) const;

  // The order matters: members are destroyed from the last to the first, so the database ends before its file system.
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
  std::shared_ptr<rocksdb::Cache> rows_;
  bool wal_;
};

// RocksDB's LRUCache with the rows and keys of its row cache, without a database.
class RowCache {
 public:
  explicit RowCache(uint64_t bytes) : rows_(rocksdb::NewLRUCache(bytes)) {}

  // False: there is no such row.
  bool get(Bytes key, rust::Vec<uint8_t>& value) const;
  void insert(Bytes key, Bytes value) const;
  // Bytes of all rows, as the cache charges them.
  uint64_t bytes() const { return rows_->GetUsage(); }

 private:
  std::shared_ptr<rocksdb::Cache> rows_;
};

std::unique_ptr<RowCache> new_row_cache(uint64_t bytes);

std::unique_ptr<Database> open_database(rust::Box<Disk> disk, const OpenOptions& options);
// The same on RocksDB's in-memory file system.
std::unique_ptr<Database> open_in_memory(const OpenOptions& options);
// RocksDB's version, for example 7.8.3.
rust::String version();

}  // namespace kvdrive
