#include <arrow/api.h>
#include <arrow/extension_type.h>
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/data/input/arrow_messages.h"
#include "longhaul/data/input/column_rows.h"
#include "longhaul/data/input/range_reader.h"

namespace longhaul::data {
namespace {

/// Bytes of memory for each stored byte: the message, its unpacked buffers (LZ4 or zstd),
/// and the decoded rows.
constexpr uint64_t kUnpacked = 4;

/// Gives Arrow the messages of a range one by one: the schema, all dictionaries, and the
/// record batches of the range.
class RangeMessages final : public arrow::ipc::MessageReader {
 public:
  RangeMessages(ArrowMessages& messages, std::unique_ptr<arrow::ipc::Message> schema,
                const InputRange& range)
      : messages_(messages), schema_(std::move(schema)), range_(range) {}

  arrow::Result<std::unique_ptr<arrow::ipc::Message>> ReadNextMessage() override {
    if (schema_) return std::move(schema_);
    try {
      return read();
    } catch (const std::exception& problem) {
      // No exception goes through Arrow's own code; rethrow_problem() throws it later.
      problem_ = std::current_exception();
      return arrow::Status::IOError(problem.what());
    }
  }
  void rethrow_problem() const {
    if (problem_) std::rethrow_exception(problem_);
  }
  /// Returns the number of rows in the file before the range.
  int64_t rows_before() const { return rows_before_; }
  uint64_t first_byte() const { return first_byte_; }

 private:
  std::unique_ptr<arrow::ipc::Message> read() {
    while (batch_ < range_.end) {
      ArrowMessages::Header header;
      if (!messages_.next(header)) {
        LH_CHECK(range_.end == InputRange::kToEnd, "data", "no record batch {}", batch_);
        return nullptr;
      }
      if (header.type != arrow::ipc::MessageType::RECORD_BATCH) {
        return messages_.load(header);
      }
      ++batch_;
      if (batch_ > range_.begin) return messages_.load(header);
      rows_before_ += header.rows;
      if (batch_ == range_.begin) {
        first_byte_ = header.end;
        messages_.set_hashing(true);
      }
    }
    return nullptr;
  }

  ArrowMessages& messages_;
  std::unique_ptr<arrow::ipc::Message> schema_;
  InputRange range_;
  uint64_t batch_ = 0;  // number of the next record batch
  int64_t rows_before_ = 0;
  uint64_t first_byte_ = 0;
  std::exception_ptr problem_;
};

class ArrowReader final : public RangeReader {
 public:
  ArrowReader(const InputFile& file, const InputRange& range, const InputOptions& options)
      : options_(options),
        pool_(options),
        // The reader of the messages hashes them. An object is read ahead only if the
        // range goes to its end, since it is not known here at which byte any other range
        // ends.
        file_(file, UINT64_MAX, range.end == InputRange::kToEnd ? UINT64_MAX : 0),
        messages_(file_, pool_.get(), options_) {
    messages_.set_hashing(range.begin == 0);
    arrow::ipc::IpcReadOptions ipc = arrow::ipc::IpcReadOptions::Defaults();
    ipc.memory_pool = pool_.get();
    ipc.use_threads = false;
    ipc.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
    auto schema = read_schema(ipc);
    auto messages = std::make_unique<RangeMessages>(messages_, std::move(schema), range);
    range_messages_ = messages.get();
    batches_ = take(arrow::ipc::RecordBatchStreamReader::Open(std::move(messages), ipc),
                    "its schema");
    choice_ = ColumnChoice(*batches_->schema(), options_, file_.path());
  }

  bool next(RawRecord& record) override {
    while (!rows_.next(record)) {
      if (!next_batch()) return false;
    }
    record.place.line = range_messages_->rows_before() + read_++;
    return true;
  }
  uint64_t bytes_read() const override {
    const uint64_t first = range_messages_->first_byte();
    return std::max(messages_.position(), first) - first;
  }
  FinishedRange finish() override {
    return {{}, file_.hashed_bytes(), file_.hash(), 0, read_};
  }

 private:
  template <typename Value>
  Value take(arrow::Result<Value> result, std::string_view where) {
    if (range_messages_ != nullptr) range_messages_->rethrow_problem();
    return require(std::move(result), file_.path(), where, options_);
  }

  /// Reads the schema and chooses the columns that are read.
  std::unique_ptr<arrow::ipc::Message> read_schema(arrow::ipc::IpcReadOptions& ipc) {
    ArrowMessages::Header header;
    if (!messages_.next(header) || header.type != arrow::ipc::MessageType::SCHEMA) {
      file_.fail("not a readable Arrow file: no schema", 0);
    }
    auto message = messages_.load(header);
    arrow::ipc::DictionaryMemo memo;
    const auto schema = take(arrow::ipc::ReadSchema(*message, &memo), "its schema");
    ipc.included_fields = ColumnChoice(*schema, options_, file_.path()).indices();
    return message;
  }

  bool next_batch() {
    rows_ = {};
    const std::string where =
        fmt::format("the record batch before byte {}", messages_.position());
    std::shared_ptr<arrow::RecordBatch> batch;
    const arrow::Status status = batches_->ReadNext(&batch);
    range_messages_->rethrow_problem();
    require(status, file_.path(), where, options_);
    if (!batch) return false;
    rows_ =
        ColumnRows(*batch, choice_, options_, file_.path(),
                   fmt::format("the record batch before byte {}", messages_.position()));
    return true;
  }

  InputOptions options_;
  LimitedPool pool_;  // destroyed after the members that it allocates for
  StoredFile file_;
  ArrowMessages messages_;
  RangeMessages* range_messages_ = nullptr;  // owned by batches_
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> batches_;
  ColumnChoice choice_;
  ColumnRows rows_;
  int64_t read_ = 0;
};

}  // namespace

std::unique_ptr<RangeReader> open_arrow(const InputFile& file, const InputRange& range,
                                        const InputOptions& options) {
  return std::make_unique<ArrowReader>(file, range, options);
}

namespace {

/// Calls look(header) for each message of the file, until `look` returns false.
template <typename Look>
void walk_headers(const InputFile& file, const InputOptions& options, const Look& look) {
  LimitedPool pool(options);
  StoredFile stored(file, 0, 0);
  ArrowMessages messages(stored, pool.get(), options);
  for (ArrowMessages::Header header; messages.next(header);) {
    if (!look(header)) return;
  }
}

/// Returns the number of nodes that a column of this type has in a record batch.
uint64_t nodes_of(const arrow::DataType& type) {
  if (type.id() == arrow::Type::EXTENSION) {
    return nodes_of(*static_cast<const arrow::ExtensionType&>(type).storage_type());
  }
  uint64_t nodes = 1;
  for (const auto& field : type.fields()) nodes += nodes_of(*field->type());
  return nodes;
}

}  // namespace

std::vector<uint64_t> arrow_batch_bytes(const InputFile& file,
                                        const InputOptions& options) {
  std::vector<uint64_t> sizes;
  uint64_t begin = 0;
  walk_headers(file, options, [&](const ArrowMessages::Header& header) {
    if (header.type != arrow::ipc::MessageType::RECORD_BATCH) return true;
    sizes.push_back(header.end - begin);
    begin = header.end;
    return true;
  });
  return sizes;
}

std::optional<EvenRows> even_arrow_rows(const InputFile& file,
                                        const InputOptions& options,
                                        const std::vector<std::string>& more,
                                        int64_t length) {
  LimitedPool pool(options);
  StoredFile stored(file, 0, 0);
  ArrowMessages messages(stored, pool.get(), options);
  ArrowMessages::Header header;
  const bool begun = messages.next(header);
  if (!begun || header.type != arrow::ipc::MessageType::SCHEMA || !messages.is_stream()) {
    return {};
  }
  arrow::ipc::DictionaryMemo memo;
  const auto schema = require(arrow::ipc::ReadSchema(*messages.load(header), &memo),
                              file.path, "its schema", options);
  if (schema->GetFieldIndex(options.field) < 0) return {};
  EvenRows even;
  std::vector<uint64_t> lists;  // nodes, behind each of which that of its values lies
  uint64_t node = 0;
  for (const auto& field : schema->fields()) {
    const bool wanted = field->name() == options.field ||
                        std::ranges::find(more, field->name()) != more.end();
    if (wanted) {
      const arrow::DataType& type = *field->type();
      if (!arrow::is_list_like(type.id())) return {};
      const arrow::Type::type values = type.field(0)->type()->id();
      if (!arrow::is_integer(values) && values != arrow::Type::BOOL) return {};
      even.columns += field->ToString() + "\n";
      lists.push_back(node);
    }
    node += nodes_of(*field->type());
  }
  while (messages.next(header)) {
    if (header.type != arrow::ipc::MessageType::RECORD_BATCH) continue;
    // No file has as many rows as would overflow the product.
    if (header.rows > (int64_t{1} << 40) / length || messages.is_compressed(header)) {
      return {};
    }
    for (const uint64_t list : lists) {
      const ArrowMessages::Node rows = ArrowMessages::node(header, list);
      const ArrowMessages::Node values = ArrowMessages::node(header, list + 1);
      const bool good = rows.length == header.rows && rows.nulls == 0 &&
                        values.length == header.rows * length && values.nulls == 0;
      if (!good) return {};
    }
    even.rows += header.rows;
  }
  return even;
}

uint64_t arrow_reader_bytes(const InputFile& file, const InputRange& range,
                            const InputOptions& options) {
  uint64_t dictionaries = 0;  // all dictionaries are held
  uint64_t largest = 0;
  uint64_t batch = 0;
  walk_headers(file, options, [&](const ArrowMessages::Header& header) {
    const uint64_t bytes = header.end - header.begin;
    if (header.type != arrow::ipc::MessageType::RECORD_BATCH) {
      dictionaries += bytes;
      return true;
    }
    if (batch >= range.begin) largest = std::max(largest, bytes);
    return ++batch < range.end;
  });
  const uint64_t stored = dictionaries + largest;
  return stored > options.max_batch_bytes / kUnpacked
             ? options.max_batch_bytes
             : std::min(stored * kUnpacked + kReaderBuffers, options.max_batch_bytes);
}

}  // namespace longhaul::data
