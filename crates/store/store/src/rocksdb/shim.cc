// RocksDB's file system on files of ours, and the calls of a database.
//
//   Rust  ─ put, get ─►  Database  ─►  RocksDB, its own threads
//                                        │ FileSystem, FSWritableFile, ...
//   Rust  ◄─ append, read, sync ─────────┘
//
// An error of ours comes from Rust as an exception and goes on to RocksDB as an IOStatus; an error of RocksDB
// goes to Rust as an exception. No name reaches the machine's own file system.

#include "kvdrive-store/src/rocksdb/shim.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>

#include "kvdrive-store/src/rocksdb/bridge.rs.h"

namespace kvdrive {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

constexpr char kDirectory[] = "db";
// RocksDB's in-memory file system requires an absolute path.
constexpr char kDirectoryInMemory[] = "/db";

// The job that the calling thread of RocksDB carries out; Lookup on threads that are not RocksDB's.
thread_local FilePurpose busy_with = FilePurpose::Lookup;

FilePurpose why_written(const std::string& name) {
  auto ends = [&](const std::string& with) {
    return name.size() >= with.size() && name.compare(name.size() - with.size(), with.size(), with) == 0;
  };
  if (ends(".log")) return FilePurpose::Wal;
  if (ends(".sst")) return busy_with == FilePurpose::Compaction ? FilePurpose::Compaction : FilePurpose::Table;
  return FilePurpose::Manifest;
}

rust::Str text(const std::string& name) { return rust::Str(name.data(), name.size()); }

Bytes bytes_of(const Slice& slice) {
  return Bytes(reinterpret_cast<const uint8_t*>(slice.data()), slice.size());
}

Slice slice_of(Bytes bytes) { return Slice(reinterpret_cast<const char*>(bytes.data()), bytes.size()); }

template <typename Act>
IOStatus carry_out(Act act) {
  try {
    act();
    return IOStatus::OK();
  } catch (const std::exception& error) {
    return IOStatus::IOError(error.what());
  }
}

// Keeps a file open during its own lifetime.
class Handle {
 public:
  Handle(const Disk& disk, uint64_t file) : disk_(disk), file_(file) {}
  ~Handle() { disk_.close(file_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  IOStatus read(uint64_t at, size_t count, Slice* result, char* scratch, FilePurpose why) const {
    size_t had = 0;
    IOStatus status = carry_out([&] {
      had = disk_.read(file_, at, rust::Slice<uint8_t>(reinterpret_cast<uint8_t*>(scratch), count), why);
    });
    *result = Slice(scratch, had);
    return status;
  }

  const Disk& disk() const { return disk_; }
  uint64_t file() const { return file_; }

 private:
  const Disk& disk_;
  uint64_t file_;
};

class SequentialFile : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(const Disk& disk, uint64_t file) : handle_(disk, file) {}

  IOStatus Read(size_t count, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    IOStatus status = handle_.read(at_, count, result, scratch, FilePurpose::Recovery);
    at_ += result->size();
    return status;
  }

  IOStatus Skip(uint64_t count) override {
    at_ += count;
    return IOStatus::OK();
  }

 private:
  Handle handle_;
  uint64_t at_ = 0;
};

class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(const Disk& disk, uint64_t file) : handle_(disk, file) {}

  IOStatus Read(uint64_t at, size_t count, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return handle_.read(at, count, result, scratch, busy_with);
  }

 private:
  Handle handle_;
};

class WritableFile : public rocksdb::FSWritableFile {
 public:
  WritableFile(const Disk& disk, uint64_t file, FilePurpose why) : handle_(disk, file), why_(why) {}

  using rocksdb::FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    return carry_out([&] { handle_.disk().append(handle_.file(), bytes_of(data), why_); });
  }

  // Appended bytes are visible to readers at once, so there is nothing to do.
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return carry_out([&] { handle_.disk().sync(handle_.file()); });
  }

  bool IsSyncThreadSafe() const override { return true; }

  IOStatus Close(const IOOptions&, IODebugContext*) override {
    return carry_out([&] { handle_.disk().finish(handle_.file(), why_); });
  }

  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    return handle_.disk().length(handle_.file());
  }

 private:
  Handle handle_;
  FilePurpose why_;
};

// The file system has no directories; Fsync of one makes the names of files durable.
class Directory : public rocksdb::FSDirectory {
 public:
  explicit Directory(const Disk& disk) : disk_(disk) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return carry_out([&] { disk_.commit(); });
  }

 private:
  const Disk& disk_;
};

class PageFileSystem : public rocksdb::FileSystem {
 public:
  explicit PageFileSystem(rust::Box<Disk> disk) : disk_(std::move(disk)) {}

  const char* Name() const override { return "kvdrive"; }

  IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result, IODebugContext*) override {
    return open<SequentialFile>(name, result);
  }

  IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext*) override {
    return open<RandomAccessFile>(name, result);
  }

  IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions&,
                           std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext*) override {
    result->reset(new WritableFile(*disk_, disk_->create(text(name)), why_written(name)));
    return IOStatus::OK();
  }

  IOStatus ReuseWritableFile(const std::string& name, const std::string& old,
                             const rocksdb::FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* result,
                             IODebugContext* debug) override {
    disk_->remove(text(old));
    return NewWritableFile(name, options, result, debug);
  }

  IOStatus NewDirectory(const std::string&, const IOOptions&, std::unique_ptr<rocksdb::FSDirectory>* result,
                        IODebugContext*) override {
    result->reset(new Directory(*disk_));
    return IOStatus::OK();
  }

  IOStatus FileExists(const std::string& name, const IOOptions&, IODebugContext*) override {
    bool is_there = disk_->find(text(name)) >= 0 || !children(name).empty();
    return is_there ? IOStatus::OK() : IOStatus::NotFound(name);
  }

  IOStatus GetChildren(const std::string& directory, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    *result = children(directory);
    return IOStatus::OK();
  }

  IOStatus DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) override {
    return disk_->remove(text(name)) ? IOStatus::OK() : IOStatus::NotFound(name);
  }

  IOStatus CreateDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }

  IOStatus CreateDirIfMissing(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }

  IOStatus DeleteDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }

  IOStatus GetFileSize(const std::string& name, const IOOptions&, uint64_t* bytes,
                       IODebugContext*) override {
    int64_t found = disk_->find(text(name));
    if (found < 0) return IOStatus::NotFound(name);
    *bytes = static_cast<uint64_t>(found);
    return IOStatus::OK();
  }

  // Files here have no times, and RocksDB does not depend on them.
  IOStatus GetFileModificationTime(const std::string&, const IOOptions&, uint64_t* time,
                                   IODebugContext*) override {
    *time = 0;
    return IOStatus::OK();
  }

  IOStatus RenameFile(const std::string& name, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    return disk_->rename(text(name), text(to)) ? IOStatus::OK() : IOStatus::NotFound(name);
  }

  // Always granted: only one database can have the pages.
  IOStatus LockFile(const std::string&, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    *lock = new Lock;
    return IOStatus::OK();
  }

  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    delete static_cast<Lock*>(lock);
    return IOStatus::OK();
  }

  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    *path = kDirectory;
    return IOStatus::OK();
  }

  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* result,
                           IODebugContext*) override {
    *result = path;
    return IOStatus::OK();
  }

  IOStatus GetFreeSpace(const std::string&, const IOOptions&, uint64_t* bytes, IODebugContext*) override {
    *bytes = disk_->free_bytes();
    return IOStatus::OK();
  }

  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* result, IODebugContext*) override {
    *result = disk_->find(text(path)) < 0;
    return IOStatus::OK();
  }

 private:
  struct Lock : rocksdb::FileLock {};

  template <typename File, typename Result>
  IOStatus open(const std::string& name, Result* result) {
    uint64_t file = disk_->open(text(name));
    if (file == 0) return IOStatus::NotFound(name);
    result->reset(new File(*disk_, file));
    return IOStatus::OK();
  }

  std::vector<std::string> children(const std::string& directory) const {
    std::string prefix = directory;
    if (prefix.empty() || prefix.back() != '/') prefix += '/';
    std::vector<std::string> names;
    for (const rust::String& name : disk_->list(text(prefix))) names.emplace_back(name);
    return names;
  }

  rust::Box<Disk> disk_;
};

// Discards RocksDB's information log: its bytes are not part of the store.
class Silent : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

// Updates `busy_with` on RocksDB's threads.
class Jobs : public rocksdb::EventListener {
 public:
  void OnFlushBegin(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { busy_with = FilePurpose::Table; }
  void OnFlushCompleted(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { busy_with = FilePurpose::Lookup; }
  void OnCompactionBegin(rocksdb::DB*, const rocksdb::CompactionJobInfo&) override {
    busy_with = FilePurpose::Compaction;
  }
  void OnCompactionCompleted(rocksdb::DB*, const rocksdb::CompactionJobInfo&) override {
    busy_with = FilePurpose::Lookup;
  }
};

void check(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error("RocksDB: " + status.ToString());
}

void copy(const Slice& from, rust::Vec<uint8_t>& to) {
  to.clear();
  to.reserve(from.size());
  for (char byte : from.ToString()) to.push_back(static_cast<uint8_t>(byte));
}

rocksdb::Options options_of(const OpenOptions& from) {
  rocksdb::BlockBasedTableOptions table;
  table.block_size = from.block_size;
  table.block_align = from.block_align;
  table.no_block_cache = from.block_cache_bytes == 0;
  if (from.block_cache_bytes > 0) table.block_cache = rocksdb::NewLRUCache(from.block_cache_bytes);
  if (from.bloom_bits > 0) table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(from.bloom_bits));

  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = from.write_buffer_size;
  options.max_write_buffer_number = static_cast<int>(from.max_write_buffer_number);
  options.level0_file_num_compaction_trigger = static_cast<int>(from.level0_file_num_compaction_trigger);
  options.level0_slowdown_writes_trigger = static_cast<int>(from.level0_slowdown_writes_trigger);
  options.level0_stop_writes_trigger = static_cast<int>(from.level0_stop_writes_trigger);
  options.delayed_write_rate = from.delayed_write_rate;
  options.max_bytes_for_level_base = from.max_bytes_for_level_base;
  options.max_bytes_for_level_multiplier = from.max_bytes_for_level_multiplier;
  options.target_file_size_base = from.target_file_size_base;
  options.level_compaction_dynamic_file_size = from.level_compaction_dynamic_file_size;
  if (from.row_cache_bytes > 0) options.row_cache = rocksdb::NewLRUCache(from.row_cache_bytes);
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.info_log = std::make_shared<Silent>();
  options.listeners.push_back(std::make_shared<Jobs>());
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

}  // namespace

Database::Database(std::unique_ptr<rocksdb::Env> env, std::unique_ptr<rocksdb::DB> db,
                   std::shared_ptr<rocksdb::Cache> rows, bool wal)
    : env_(std::move(env)), db_(std::move(db)), rows_(std::move(rows)), wal_(wal) {}

Database::~Database() {
  // What it could not write is lost, as after a power cut.
  db_->Close().PermitUncheckedError();
}

rocksdb::WriteOptions Database::write_options(bool sync) const {
  rocksdb::WriteOptions options;
  options.disableWAL = !wal_;
  options.sync = sync && wal_;
  return options;
}

void Database::put(Bytes key, Bytes value, bool sync) const {
  check(db_->Put(write_options(sync), slice_of(key), slice_of(value)));
}

void Database::remove(Bytes key, bool sync) const {
  check(db_->Delete(write_options(sync), slice_of(key)));
}

bool Database::get(Bytes key, rust::Vec<uint8_t>& value) const {
  std::string found;
  rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), slice_of(key), &found);
  if (status.IsNotFound()) return false;
  check(status);
  copy(found, value);
  return true;
}

bool Database::find(Bytes key) const {
  rocksdb::PinnableSlice found;
  rocksdb::Status status =
      db_->Get(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), slice_of(key), &found);
  if (status.IsNotFound()) return false;
  check(status);
  return true;
}

bool Database::seek(Bytes from, rust::Vec<uint8_t>& key, rust::Vec<uint8_t>& value) const {
  std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(rocksdb::ReadOptions()));
  at->Seek(slice_of(from));
  check(at->status());
  if (!at->Valid()) return false;
  copy(at->key(), key);
  copy(at->value(), value);
  return true;
}

void Database::sync() const {
  if (!wal_) return flush();
  check(db_->SyncWAL());
}

void Database::flush() const { check(db_->Flush(rocksdb::FlushOptions())); }

uint64_t Database::row_cache_bytes() const { return rows_ == nullptr ? 0 : rows_->GetUsage(); }

rust::String Database::property(rust::Str name) const {
  std::string found;
  db_->GetProperty(Slice(name.data(), name.size()), &found);
  return rust::String(found);
}

uint64_t Database::number(const std::string& property) const {
  uint64_t found = 0;
  db_->GetIntProperty(property, &found);
  return found;
}

void Database::wait_until_idle() const {
  using Property = rocksdb::DB::Properties;
  const std::string* busy[] = {&Property::kNumImmutableMemTable, &Property::kMemTableFlushPending,
                               &Property::kNumRunningFlushes, &Property::kCompactionPending,
                               &Property::kNumRunningCompactions};
  for (int idle = 0; idle < 2;) {
    if (number(Property::kBackgroundErrors) > 0) throw std::runtime_error("RocksDB: a background job failed");
    uint64_t sum = 0;
    for (const std::string* property : busy) sum += number(*property);
    idle = sum == 0 ? idle + 1 : 0;
    if (sum > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

namespace {

// The key of a row: identifier of the cache, number of the table, sequence number, and the pair's key.
std::string key_of_row(Bytes key) {
  std::string row("\x01\x0c\x00", 3);
  row.append(reinterpret_cast<const char*>(key.data()), key.size());
  return row;
}

void delete_row(const Slice&, void* row) { delete static_cast<std::string*>(row); }

}  // namespace

bool RowCache::get(Bytes key, rust::Vec<uint8_t>& value) const {
  rocksdb::Cache::Handle* handle = rows_->Lookup(key_of_row(key));
  if (handle == nullptr) return false;
  const std::string& row = *static_cast<std::string*>(rows_->Value(handle));
  value.clear();
  std::copy(row.begin(), row.end(), std::back_inserter(value));
  rows_->Release(handle);
  return true;
}

void RowCache::insert(Bytes key, Bytes value) const {
  auto row = std::make_unique<std::string>(reinterpret_cast<const char*>(value.data()), value.size());
  // The charge of RocksDB's table cache for a row.
  size_t charge = row->capacity() + sizeof(std::string);
  check(rows_->Insert(key_of_row(key), row.get(), charge, delete_row));
  row.release();
}

std::unique_ptr<RowCache> new_row_cache(uint64_t bytes) { return std::make_unique<RowCache>(bytes); }

namespace {

std::unique_ptr<Database> open_on(std::unique_ptr<rocksdb::Env> env, const char* directory,
                                  const OpenOptions& options) {
  rocksdb::Options made = options_of(options);
  made.env = env.get();
  rocksdb::DB* db = nullptr;
  check(rocksdb::DB::Open(made, directory, &db));
  return std::make_unique<Database>(std::move(env), std::unique_ptr<rocksdb::DB>(db), made.row_cache,
                                    options.wal);
}

}  // namespace

std::unique_ptr<Database> open_database(rust::Box<Disk> disk, const OpenOptions& options) {
  return open_on(rocksdb::NewCompositeEnv(std::make_shared<PageFileSystem>(std::move(disk))), kDirectory,
                 options);
}

std::unique_ptr<Database> open_in_memory(const OpenOptions& options) {
  return open_on(std::unique_ptr<rocksdb::Env>(rocksdb::NewMemEnv(rocksdb::Env::Default())),
                 kDirectoryInMemory, options);
}

rust::String version() { return rocksdb::GetRocksVersionAsString(true); }

}  // namespace kvdrive
