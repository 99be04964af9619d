// RocksDB over files of ours: what Rust calls of it (`bridge.rs`). What RocksDB calls of Rust is in shim.cc.
#pragma once

#include <cstdint>
#include <memory>

#include <rocksdb/db.h>

#include "rust/cxx.h"

namespace kvdrive {

struct Disk;
struct OpenOptions;

using Bytes = rust::Slice<const uint8_t>;

// A database and the file system it is on. Any thread may call it.
class Database {
 public:
  Database(std::unique_ptr<rocksdb::Env> env, std::unique_ptr<rocksdb::DB> db, bool wal);
  ~Database();

  void put(Bytes key, Bytes value, bool sync) const;
  void remove(Bytes key, bool sync) const;
  // False: there is no such key.
  bool get(Bytes key, rust::Vec<uint8_t>& value) const;
  // The first pair at or behind `from`. False: there is none.
  bool seek(Bytes from, rust::Vec<uint8_t>& key, rust::Vec<uint8_t>& value) const;
  // Makes durable what was put.
  void sync() const;
  // Returns when no thread of RocksDB has anything to write or to merge.
  void wait_until_idle() const;
  // A property as text, empty if there is none.
  rust::String property(rust::Str name) const;

 private:
  uint64_t number(const std::string& property) const;
  rocksdb::WriteOptions write_options(bool sync) const;

  // In this order: what is below is destroyed last.
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
  bool wal_;
};

std::unique_ptr<Database> open_database(rust::Box<Disk> disk, const OpenOptions& options);

}  // namespace kvdrive
