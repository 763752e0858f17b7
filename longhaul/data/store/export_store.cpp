#include "longhaul/data/store/export_store.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/data/input/arrow_memory.h"
#include "longhaul/data/store/resumable_build.h"
#include "longhaul/data/store/token_store.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::data {
namespace {

/// Bytes of a token: input_ids 4, attention_mask 1, labels 8.
constexpr int64_t kBytesPerToken = 13;
/// About how many tokens a thread holds at a time. A longer row is held whole.
constexpr int64_t kBatchTokens = int64_t{1} << 18;

void require(const arrow::Status& status, const fs::path& file) {
  if (status.ok()) return;
  require_memory(status, file);
  // Arrow gives errors of the disk as text only. After a full disk another try can
  // succeed, so this error is temporary.
  const std::string what = fmt::format("{}: {}", file.string(), status.ToString());
  if (what.find("No space left") != std::string::npos) {
    throw TemporaryError("data", what + "; make space and run the same command again");
  }
  throw InputError("data", what);
}

template <typename Value>
Value require(arrow::Result<Value> result, const fs::path& file) {
  require(result.status(), file);
  return std::move(result).ValueUnsafe();
}

OrderedJson features() {
  OrderedJson json;
  for (const auto& [name, dtype] :
       {std::pair{"input_ids", "int32"}, std::pair{"attention_mask", "int8"},
        std::pair{"labels", "int64"}}) {
    json[name] = {{"feature", {{"dtype", dtype}, {"_type", "Value"}}}, {"_type", "List"}};
  }
  return json;
}

std::shared_ptr<arrow::Schema> schema() {
  const OrderedJson info = {{"info", {{"features", features()}}}};
  return arrow::schema({arrow::field("input_ids", arrow::list(arrow::int32())),
                        arrow::field("attention_mask", arrow::list(arrow::int8())),
                        arrow::field("labels", arrow::list(arrow::int64()))},
                       arrow::key_value_metadata({"huggingface"}, {json_text(info)}));
}

/// Makes a column of rows that lie one after another in `values`.
template <typename ArrayType, typename Value>
std::shared_ptr<arrow::Array> column(const std::vector<int32_t>& offsets,
                                     const std::vector<Value>& values,
                                     const std::shared_ptr<arrow::DataType>& type) {
  const auto inner = std::make_shared<ArrayType>(static_cast<int64_t>(values.size()),
                                                 arrow::Buffer::Wrap(values));
  return std::make_shared<arrow::ListArray>(arrow::list(type),
                                            static_cast<int64_t>(offsets.size()) - 1,
                                            arrow::Buffer::Wrap(offsets), inner);
}

class Exporter {
 public:
  Exporter(const fs::path& store, const StoreExportOptions& options)
      : store_(store), options_(options), schema_(schema()) {
    const int64_t tokens = store_.info().tokens;
    report_.rows = tokens / options.seq_len;
    report_.tokens_left = tokens - report_.rows * options.seq_len;
    if (options.keep_tail && report_.tokens_left > 0) {
      ++report_.rows;
      report_.tokens_left = 0;
    }
    if (report_.rows == 0) {
      fail_input("data",
                 "{}: {} tokens do not fill one row of {}; choose a smaller --seq-len, "
                 "or --tail keep",
                 store.string(), tokens, options.seq_len);
    }
    const auto bytes =
        static_cast<uint64_t>((tokens - report_.tokens_left) * kBytesPerToken);
    report_.files =
        static_cast<int64_t>((bytes + options.file_bytes - 1) / options.file_bytes);
    report_.files = std::clamp<int64_t>(report_.files, 1, report_.rows);
  }

  StoreExportReport run(const fs::path& dir) {
    const int threads = system::threads_of(options_.threads);
    system::share_among_threads(report_.files, threads,
                                [&](int64_t file) { write_file(dir, file); });
    write_descriptions(dir);
    return report_;
  }

 private:
  std::string file_name(int64_t file) const {
    return fmt::format("data-{:05}-of-{:05}.arrow", file, report_.files);
  }
  /// Returns the number of a file's first row. As in Hugging Face datasets, the first
  /// files have one row more than the others.
  int64_t first_row(int64_t file) const {
    return file * (report_.rows / report_.files) +
           std::min(file, report_.rows % report_.files);
  }

  void write_file(const fs::path& dir, int64_t file) {
    const fs::path path = dir / file_name(file);
    const auto sink = require(arrow::io::FileOutputStream::Open(path.string()), path);
    const auto writer = require(arrow::ipc::MakeStreamWriter(sink, schema_), path);
    const int64_t most = std::max<int64_t>(1, kBatchTokens / options_.seq_len);
    const int64_t end = first_row(file + 1);
    for (int64_t row = first_row(file); row < end; row += most) {
      write_rows(*writer, row, std::min(end, row + most), path);
    }
    require(writer->Close(), path);
    require(sink->Close(), path);
    File::open_read(path).sync();
    const std::lock_guard lock(mutex_);
    report_.bytes += fs::file_size(path);
  }

  void write_rows(arrow::ipc::RecordBatchWriter& writer, int64_t begin, int64_t end,
                  const fs::path& path) {
    const int64_t first = begin * options_.seq_len;
    const int64_t last = std::min(end * options_.seq_len, store_.info().tokens);
    const auto count = static_cast<size_t>(last - first);
    std::vector<int32_t> offsets;
    for (int64_t row = begin; row <= end; ++row) {
      offsets.push_back(
          static_cast<int32_t>(std::min(row * options_.seq_len, last) - first));
    }
    std::vector<int32_t> ids(count);
    store_.read(first, ids);
    const std::vector<int8_t> mask(count, 1);
    std::vector<int64_t> labels(ids.begin(), ids.end());
    if (!store_.all_targets()) {
      std::vector<uint8_t> is_target(count);
      store_.read_targets(first, is_target);
      for (size_t i = 0; i < count; ++i) {
        if (is_target[i] == 0) labels[i] = -100;
      }
    }
    const auto batch = arrow::RecordBatch::Make(
        schema_, end - begin,
        {column<arrow::Int32Array>(offsets, ids, arrow::int32()),
         column<arrow::Int8Array>(offsets, mask, arrow::int8()),
         column<arrow::Int64Array>(offsets, labels, arrow::int64())});
    require(writer.WriteRecordBatch(*batch), path);
    const std::lock_guard lock(mutex_);
    written_ += last - first;
    if (options_.progress) {
      options_.progress(written_, store_.info().tokens - report_.tokens_left);
    }
  }

  void write_descriptions(const fs::path& dir) const {
    OrderedJson files = OrderedJson::array();
    for (int64_t file = 0; file < report_.files; ++file) {
      files.push_back({{"filename", file_name(file)}});
    }
    const OrderedJson info = {{"citation", ""},
                              {"description", ""},
                              {"features", features()},
                              {"homepage", ""},
                              {"license", ""}};
    write_text_durable(dir / "dataset_info.json", json_text(info, 2));
    const OrderedJson state = {
        {"_data_files", files},
        {"_fingerprint", hash_hex(fmt::format("{} {} {}", store_.info().fingerprint,
                                              options_.seq_len, options_.keep_tail))
                             .substr(0, 16)},
        {"_format_columns", nullptr},
        {"_format_kwargs", OrderedJson::object()},
        {"_format_type", nullptr},
        {"_output_all_columns", false},
        {"_split", nullptr}};
    write_text_durable(dir / "state.json", json_text(state, 2));
    sync_directory(dir);
  }

  TokenStore store_;
  const StoreExportOptions& options_;
  std::shared_ptr<arrow::Schema> schema_;
  std::mutex mutex_;
  int64_t written_ = 0;
  StoreExportReport report_;
};

}  // namespace

StoreExportReport export_store(const fs::path& store, const fs::path& out,
                               const StoreExportOptions& options) {
  LH_CHECK(options.seq_len > 0 && options.file_bytes > 0, "data",
           "rows of {} tokens in files of {} bytes", options.seq_len, options.file_bytes);
  Exporter exporter(store, options);
  NewDirectory place(out, "state.json", options.force);
  const StoreExportReport report = exporter.run(place.path());
  place.commit();
  return report;
}

}  // namespace longhaul::data
