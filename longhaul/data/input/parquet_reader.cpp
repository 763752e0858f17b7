#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/io/interfaces.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/data/input/column_rows.h"
#include "longhaul/data/input/range_reader.h"
#include "longhaul/data/input/stored_file.h"

namespace longhaul::data {
namespace {

/// The largest footer, which is held in memory several times. A file with many thousand
/// row groups has a footer of a few MB.
constexpr uint64_t kMaxFooterBytes = uint64_t{64} << 20;
constexpr uint64_t kSmallestFile = 12;  // magic, length of the footer, magic
/// The desired number of decoded bytes in a batch. kMaxBatchRows is the most rows of a
/// batch.
constexpr int64_t kBatchBytes = int64_t{8} << 20;
constexpr int64_t kMaxBatchRows = 4096;
constexpr int64_t kReadBytes = int64_t{1} << 20;

/// Checks magic and footer length before the library sees the file.
void check_frame(const StoredFile& file) {
  const uint64_t size = file.size();
  std::array<char, 8> tail{};
  std::array<char, 4> head{};
  if (size < kSmallestFile) {
    file.fail("not a Parquet file: it is too short and ends", size);
  }
  // The end of an object is read first, because the footer, which is read next, lies
  // beside it.
  file.read_at(size - tail.size(), tail);
  file.read_at(0, head);
  const std::string_view end(tail.data() + 4, 4);
  const std::string_view begin(head.data(), head.size());
  if (end == "PARE" || begin == "PARE") {
    file.fail("an encrypted Parquet file", 0, "write it again without encryption");
  }
  if (begin != "PAR1") file.fail("not a Parquet file: no PAR1", 0);
  if (end != "PAR1") {
    file.fail("truncated Parquet data: no PAR1 where the file ends,", size - 4);
  }
  uint32_t footer = 0;
  std::memcpy(&footer, tail.data(), sizeof(footer));
  if (footer > size - kSmallestFile || footer > kMaxFooterBytes) {
    file.fail(fmt::format("a Parquet footer of {} bytes (at most {} are read)", footer,
                          std::min(kMaxFooterBytes, size - kSmallestFile)),
              size - tail.size());
  }
}

/// Refuses a file whose columns are encrypted although its footer is not.
void refuse_encrypted(const parquet::FileMetaData& footer, const StoredFile& file) {
  if (!footer.is_encryption_algorithm_set()) return;
  file.fail("a Parquet file with encrypted columns", 0,
            "write it again without encryption");
}

parquet::ReaderProperties reader_properties(arrow::MemoryPool* pool) {
  parquet::ReaderProperties properties(pool);
  properties.enable_buffered_stream();
  properties.set_buffer_size(kReadBytes);
  properties.set_page_checksum_verification(true);
  return properties;
}

/// An object as the library reads it. Bytes that were read for their hash are kept until
/// they are decoded, so that no byte of a column is fetched twice.
class ObjectBytes final : public arrow::io::RandomAccessFile {
 public:
  ObjectBytes(const StoredFile& file, arrow::MemoryPool* pool)
      : file_(file), pool_(pool) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> GetSize() override { return static_cast<int64_t>(file_.size()); }
  arrow::Result<int64_t> Read(int64_t count, void* to) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t done, ReadAt(position_, count, to));
    position_ += done;
    return done;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, count));
    position_ += buffer->size();
    return buffer;
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t count, void* to) override {
    if (position < 0 || count < 0) return arrow::Status::Invalid("a negative place");
    const auto begin = static_cast<uint64_t>(position);
    const uint64_t size = file_.size();
    if (begin >= size) return 0;
    count = std::min(count, static_cast<int64_t>(size - begin));
    const std::span<char> bytes(static_cast<char*>(to), static_cast<size_t>(count));
    if (copy_kept(begin, bytes)) return count;
    try {
      file_.read_at(begin, bytes);
    } catch (const std::exception& problem) {
      // No exception goes through Arrow's own code; rethrow_problem() throws it later.
      problem_ = std::current_exception();
      return arrow::Status::IOError(problem.what());
    }
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position,
                                                       int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(count, pool_));
    ARROW_ASSIGN_OR_RAISE(const int64_t done,
                          ReadAt(position, count, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(done));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

  /// Reads and keeps a part of the object. The bytes stay until forget().
  std::span<const char> keep(uint64_t begin, uint64_t count,
                             const InputOptions& options) {
    std::shared_ptr<arrow::Buffer> buffer =
        require(arrow::AllocateBuffer(static_cast<int64_t>(count), pool_), file_.path(),
                "a row group", options);
    const std::span<char> bytes(reinterpret_cast<char*>(buffer->mutable_data()), count);
    file_.read_at(begin, bytes);
    kept_.emplace_back(begin, std::move(buffer));
    return bytes;
  }
  void forget() { kept_.clear(); }
  void rethrow_problem() const {
    if (problem_) std::rethrow_exception(problem_);
  }

 private:
  bool copy_kept(uint64_t begin, std::span<char> to) const {
    for (const auto& [start, buffer] : kept_) {
      const auto size = static_cast<uint64_t>(buffer->size());
      if (begin < start || begin - start > size || to.size() > size - (begin - start)) {
        continue;
      }
      std::memcpy(to.data(), buffer->data() + (begin - start), to.size());
      return true;
    }
    return false;
  }

  const StoredFile& file_;
  arrow::MemoryPool* pool_;
  std::vector<std::pair<uint64_t, std::shared_ptr<arrow::Buffer>>> kept_;
  std::exception_ptr problem_;
  int64_t position_ = 0;
  bool closed_ = false;
};

/// Returns the object that the file is; null for a file on the disk.
std::shared_ptr<ObjectBytes> open_object(const StoredFile& file,
                                         arrow::MemoryPool* pool) {
  return file.is_object() ? std::make_shared<ObjectBytes>(file, pool) : nullptr;
}

std::shared_ptr<arrow::io::RandomAccessFile> open_stored(
    const StoredFile& file, const std::shared_ptr<ObjectBytes>& object,
    arrow::MemoryPool* pool, const InputOptions& options) {
  if (object) return object;
  return require(arrow::io::ReadableFile::Open(file.path().string(), pool), file.path(),
                 "the file", options);
}

/// Runs `act`. Turns any exception of the library into an error that names the file. An
/// error in reading `object` is thrown in place of the library's own error about it.
template <typename Act>
auto guarded(const fs::path& file, const std::shared_ptr<ObjectBytes>& object,
             std::string_view where, const Act& act) {
  try {
    return act();
  } catch (const Error&) {
    if (object) object->rethrow_problem();
    throw;
  } catch (const std::exception& problem) {
    if (object) object->rethrow_problem();
    // When the system refuses memory or a thread, the file is not at fault.
    const Error meant = to_error(problem);
    if (meant.kind() == ErrorKind::Temporary)
      throw TemporaryError(meant.area(), meant.message());
    fail_input("data", "{}: {} is not readable: {}; copy or download the file again",
               file.string(), where, problem.what());
  }
}

struct ByteSpan {
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// Returns the bytes of a row group's column in the file.
ByteSpan chunk_span(const parquet::ColumnChunkMetaData& chunk, const StoredFile& file,
                    int group) {
  int64_t begin = chunk.data_page_offset();
  if (chunk.has_dictionary_page() && chunk.dictionary_page_offset() > 0) {
    begin = std::min(begin, chunk.dictionary_page_offset());
  }
  const int64_t size = chunk.total_compressed_size();
  const auto limit = static_cast<int64_t>(file.size());
  if (begin < 4 || size < 0 || begin > limit || size > limit - begin) {
    file.fail(fmt::format("row group {} claims {} bytes", group, size),
              begin < 0 ? 0 : static_cast<uint64_t>(begin));
  }
  return {static_cast<uint64_t>(begin), static_cast<uint64_t>(begin + size)};
}

/// Returns whether a row group has rows. A group without rows has no pages in the file.
bool has_rows(const parquet::RowGroupMetaData& group, const StoredFile& file, int index) {
  if (group.num_rows() != 0) return true;
  for (int i = 0; i < group.num_columns(); ++i) {
    const int64_t values = group.ColumnChunk(i)->num_values();
    if (values == 0) continue;
    file.fail(fmt::format("row group {} claims {} values in 0 rows", index, values), 0);
  }
  return false;
}

uint64_t group_bytes(const parquet::RowGroupMetaData& group, const StoredFile& file,
                     int index) {
  uint64_t bytes = 0;
  if (!has_rows(group, file, index)) return bytes;
  for (int i = 0; i < group.num_columns(); ++i) {
    const ByteSpan span = chunk_span(*group.ColumnChunk(i), file, index);
    bytes += span.end - span.begin;
  }
  return bytes;
}

class ParquetReader final : public RangeReader {
 public:
  ParquetReader(const InputFile& file, const InputRange& range,
                const InputOptions& options)
      : options_(options),
        pool_(options),
        file_(file, 0, 0),
        object_(open_object(file_, pool_.get())) {
    check_frame(file_);
    guarded(file_.path(), object_, "its footer", [&] { open_reader(); });
    const auto groups = static_cast<uint64_t>(metadata_->num_row_groups());
    end_ = static_cast<int>(std::min(range.end, groups));
    LH_CHECK(range.begin <= groups, "data", "{}: no row group {}", file.path.string(),
             range.begin);
    for (; group_ < static_cast<int>(range.begin); ++group_) {
      row_ += metadata_->RowGroup(group_)->num_rows();
    }
    first_row_ = row_;
  }

  bool next(RawRecord& record) override {
    while (!rows_.next(record)) {
      if (batches_) {
        next_batch();
      } else if (group_ == end_) {
        return false;
      } else {
        guarded(file_.path(), object_, where(), [&] { open_group(); });
      }
    }
    record.place.line = row_++;
    ++group_read_;
    return true;
  }

  uint64_t bytes_read() const override {
    if (!batches_ || group_rows_ == 0) return done_;
    const double share =
        static_cast<double>(group_read_) / static_cast<double>(group_rows_);
    return done_ + static_cast<uint64_t>(share * static_cast<double>(group_stored_));
  }
  FinishedRange finish() override {
    return {{}, file_.hashed_bytes(), file_.hash(), 0, row_ - first_row_};
  }

 private:
  std::string where() const { return fmt::format("row group {}", group_); }

  void open_reader() {
    parquet::arrow::FileReaderBuilder builder;
    require(builder.Open(open_stored(file_, object_, pool_.get(), options_),
                         reader_properties(pool_.get())),
            file_.path(), "its footer", options_);
    parquet::ArrowReaderProperties properties;
    properties.set_use_threads(false);
    properties.set_pre_buffer(false);
    properties.set_arrow_extensions_enabled(false);
    builder.memory_pool(pool_.get())->properties(properties);
    reader_ = require(builder.Build(), file_.path(), "its footer", options_);
    metadata_ = reader_->parquet_reader()->metadata();
    refuse_encrypted(*metadata_, file_);
    std::shared_ptr<arrow::Schema> schema;
    require(reader_->GetSchema(&schema), file_.path(), "its schema", options_);
    const ColumnChoice chosen(*schema, options_, file_.path());
    for (const int index : chosen.indices()) add_leaves(schema->field(index)->name());
    // The batches that are read have the chosen columns only.
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const int index : chosen.indices()) fields.push_back(schema->field(index));
    choice_ = ColumnChoice(arrow::Schema(fields), options_, file_.path());
  }

  void add_leaves(const std::string& name) {
    const parquet::SchemaDescriptor& schema = *metadata_->schema();
    for (int i = 0; i < schema.num_columns(); ++i) {
      if (schema.GetColumnRoot(i)->name() == name) leaves_.push_back(i);
    }
  }

  void open_group() {
    const auto group = metadata_->RowGroup(group_);
    if (!has_rows(*group, file_, group_)) {
      ++group_;
      return;
    }
    group_rows_ = group->num_rows();
    group_read_ = 0;
    group_stored_ = group_bytes(*group, file_, group_);
    if (group_rows_ < 0) file_.fail(where() + " has a negative number of rows", 0);
    int64_t decoded = 0;
    for (const int leaf : leaves_) {
      const auto chunk = group->ColumnChunk(leaf);
      hash_chunk(chunk_span(*chunk, file_, group_));
      decoded += std::clamp<int64_t>(chunk->total_uncompressed_size(), 0, INT64_MAX / 8);
    }
    const int64_t each =
        std::max<int64_t>(decoded / std::max<int64_t>(group_rows_, 1), 1);
    reader_->set_batch_size(std::clamp<int64_t>(kBatchBytes / each, 1, kMaxBatchRows));
    batches_ = require(reader_->GetRecordBatchReader({group_}, leaves_), file_.path(),
                       where(), options_);
  }

  /// Hashes the bytes of a row group's column. This also reads the bytes in order into
  /// the page cache before they are decoded.
  void hash_chunk(const ByteSpan& span) {
    if (object_) {
      file_.hash_more(object_->keep(span.begin, span.end - span.begin, options_));
      return;
    }
    buffer_.resize(static_cast<size_t>(kReadBytes));
    for (uint64_t at = span.begin; at < span.end;) {
      const auto part = std::span(buffer_).first(
          static_cast<size_t>(std::min<uint64_t>(buffer_.size(), span.end - at)));
      file_.read_at(at, part);
      file_.hash_more(part);
      at += part.size();
    }
  }

  void next_batch() {
    rows_ = {};
    guarded(file_.path(), object_, where(), [&] {
      std::shared_ptr<arrow::RecordBatch> batch;
      require(batches_->ReadNext(&batch), file_.path(), where(), options_);
      if (batch) {
        rows_ = ColumnRows(*batch, choice_, options_, file_.path(), where());
        return;
      }
      if (group_read_ != group_rows_) {
        fail_input(
            "data",
            "{}: {} has {} rows, its footer says {}; copy or download the file again",
            file_.path().string(), where(), group_read_, group_rows_);
      }
      batches_.reset();
      if (object_) object_->forget();
      done_ += group_stored_;
      ++group_;
    });
  }

  InputOptions options_;
  LimitedPool pool_;  // destroyed after the members that it allocates for
  StoredFile file_;
  std::shared_ptr<ObjectBytes> object_;  ///< null for a file of the disk
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  ColumnChoice choice_;
  std::vector<int> leaves_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  ColumnRows rows_;
  std::vector<char> buffer_;
  int group_ = 0;
  int end_ = 0;
  int64_t row_ = 0;  // in the file
  int64_t first_row_ = 0;
  int64_t group_rows_ = 0;
  int64_t group_read_ = 0;
  uint64_t group_stored_ = 0;
  uint64_t done_ = 0;
};

}  // namespace

std::unique_ptr<RangeReader> open_parquet(const InputFile& file, const InputRange& range,
                                          const InputOptions& options) {
  return std::make_unique<ParquetReader>(file, range, options);
}

namespace {

/// Opens and checks a file. Returns look(footer, file).
template <typename Look>
auto with_footer(const InputFile& file, const InputOptions& options, const Look& look) {
  LimitedPool pool(options);
  const StoredFile stored(file, 0, 0);
  const auto object = open_object(stored, pool.get());
  check_frame(stored);
  return guarded(file.path, object, "its footer", [&] {
    const auto source = open_stored(stored, object, pool.get(), options);
    const auto reader =
        parquet::ParquetFileReader::Open(source, reader_properties(pool.get()));
    refuse_encrypted(*reader->metadata(), stored);
    return look(*reader->metadata(), stored);
  });
}

/// Returns the memory for a row group's column: the packed pages, the unpacked pages and
/// the decoded rows. Each of the three sizes counts as at most `limit`, whatever the
/// metadata say.
uint64_t chunk_memory(const parquet::ColumnChunkMetaData& chunk, uint64_t limit) {
  const auto bound = [&](int64_t bytes) {
    return std::min(static_cast<uint64_t>(std::max<int64_t>(bytes, 0)), limit);
  };
  return bound(chunk.total_compressed_size()) +
         2 * bound(chunk.total_uncompressed_size());
}

}  // namespace

std::vector<uint64_t> parquet_group_bytes(const InputFile& file,
                                          const InputOptions& options) {
  return with_footer(file, options, [](const auto& footer, const StoredFile& stored) {
    std::vector<uint64_t> sizes;
    for (int i = 0; i < footer.num_row_groups(); ++i) {
      sizes.push_back(group_bytes(*footer.RowGroup(i), stored, i));
    }
    return sizes;
  });
}

uint64_t parquet_reader_bytes(const InputFile& file, const InputRange& range,
                              const InputOptions& options) {
  const uint64_t limit = options.max_batch_bytes;
  return with_footer(file, options, [&](const auto& footer, const StoredFile&) {
    const parquet::SchemaDescriptor& schema = *footer.schema();
    const auto end = std::min(range.end, static_cast<uint64_t>(footer.num_row_groups()));
    uint64_t most = 0;
    for (uint64_t i = range.begin; i < end; ++i) {
      const auto group = footer.RowGroup(static_cast<int>(i));
      uint64_t bytes = kReaderBuffers;
      for (int leaf = 0; leaf < schema.num_columns() && bytes < limit; ++leaf) {
        const std::string& name = schema.GetColumnRoot(leaf)->name();
        if (name == options.field || name == "labels" || name == "attention_mask") {
          bytes += chunk_memory(*group->ColumnChunk(leaf), limit);
        }
      }
      most = std::max(most, bytes);
    }
    return std::min(most, limit);
  });
}

}  // namespace longhaul::data
