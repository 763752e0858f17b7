#include "longhaul/data/input/input_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <future>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/input_files.h"
#include "longhaul/data/input/range_reader.h"
#include "longhaul/data/input/stored_file.h"
#include "longhaul/data/places/object_reader.h"
#include "longhaul/system/worker_pool.h"

namespace longhaul::data {
namespace {

/// A range and its stored bytes.
struct Piece {
  InputRange range;
  uint64_t bytes = 0;
};

/// Adds pieces of whole row groups or record batches, of about `about_bytes` bytes.
void add_runs(int file, const std::vector<uint64_t>& sizes, uint64_t about_bytes,
              std::vector<Piece>& pieces) {
  Piece piece{{file, 0, 0}, 0};
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (piece.range.end > piece.range.begin && piece.bytes + sizes[i] > about_bytes) {
      pieces.push_back(piece);
      piece = {{file, i, i}, 0};
    }
    piece.range.end = i + 1;
    piece.bytes += sizes[i];
  }
  // The last piece also includes everything after its last batch, such as the
  // end-of-stream mark.
  piece.range.end = InputRange::kToEnd;
  pieces.push_back(piece);
}

void add_byte_ranges(int file, uint64_t size, uint64_t about_bytes,
                     std::vector<Piece>& pieces) {
  const uint64_t count = size / about_bytes + (size % about_bytes != 0 ? 1 : 0);
  const uint64_t each = size / count;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = i * each;
    const uint64_t end = i + 1 == count ? size : begin + each;
    pieces.push_back({{file, begin, end}, end - begin});
  }
}

std::unique_ptr<RangeReader> open_range(const InputFile& file, const InputRange& range,
                                        const InputOptions& options) {
  // The openers stand in the order of InputFormat.
  constexpr std::array kOpen = {open_text, open_json_lines, open_csv, open_parquet,
                                open_arrow};
  return kOpen.at(static_cast<size_t>(file.format))(file, range, options);
}

/// Throws InputError for an option that applies to no file.
void check_options_have_a_use(const InputOptions& options,
                              const std::vector<InputFile>& files) {
  const auto none = [&](const auto& obeys) {
    return std::ranges::none_of(
        files, [&](const InputFile& file) { return obeys(file.format); });
  };
  if (options.field_asked && none(has_fields)) {
    fail_input("data",
               "--field {}: each input is a file of text that makes one document and has "
               "no fields; leave --field out, or give the inputs' format with --format",
               options.field);
  }
  if (options.delimiter != 0 &&
      none([](InputFormat f) { return f == InputFormat::Csv; })) {
    throw InputError("data",
                     "--delimiter: none of the inputs is CSV; leave --delimiter out, or "
                     "give --format csv");
  }
}

/// A reader of a part requests bytes of later objects before it needs them: the first
/// piece of the next object, or some small objects.
constexpr uint64_t kBytesAhead = kLargestPiece;
constexpr size_t kReadersAhead = 4;
constexpr int kProvers = 2;

/// Runs `work` on a file. If the work fails and the object was replaced since it was
/// found, the error says that the object was replaced, and not what is wrong with its new
/// bytes.
template <typename Work>
auto do_on(const InputFile& file, Work work) {
  try {
    return work();
  } catch (const InputError&) {
    if (file.object) file.object->store->prove_unchanged(file.object->info);
    throw;
  }
}

class PartReader final : public RecordReader {
 public:
  PartReader(const InputSet& inputs, InputPart part)
      : options_(inputs.options()), part_(std::move(part)) {
    for (const InputRange& range : part_.ranges) {
      LH_CHECK(range.begin <= range.end, "data", "no range {} to {} of file {}",
               range.begin, range.end, range.file);
      files_.push_back(inputs.files().at(static_cast<size_t>(range.file)));
    }
  }

  bool next(RawRecord& record) override {
    while (finished_.size() < part_.ranges.size()) {
      const InputRange& range = part_.ranges[finished_.size()];
      if (!reader_) {
        open_ahead();
        reader_ = std::move(readers_.front());
        readers_.pop_front();
        records_ = 0;
      }
      record.clear();
      const InputFile& file = files_[finished_.size()];
      if (do_on(file, [&] { return reader_->next(record); })) {
        record.place.file = range.file;
        record.place.range_begin = range.begin;
        ++records_;
        return true;
      }
      FinishedRange finished = reader_->finish();
      prove_object(file);
      finished.range = range;
      finished.records = records_;
      done_ += reader_->bytes_read();
      reader_.reset();
      finished_.push_back(std::move(finished));
    }
    // finished() may return the ranges of a part only if all objects of the part are
    // proved to be unchanged.
    try {
      for (std::future<void>& proof : std::exchange(proofs_, {})) proof.get();
    } catch (...) {
      finished_.clear();
      throw;
    }
    return false;
  }
  uint64_t bytes_read() const override {
    return done_ + (reader_ ? reader_->bytes_read() : 0);
  }
  const std::vector<FinishedRange>& finished() const override { return finished_; }

 private:
  /// Opens the reader of the next range, and readers of some later ranges, whose first
  /// bytes are requested while the next range is read.
  void open_ahead() {
    const auto bytes = [this](size_t range) {
      return std::min(files_[range].stored_bytes, kLargestPiece);
    };
    uint64_t ahead = 0;
    for (size_t i = 1; i < readers_.size(); ++i) ahead += bytes(opened_ - i);
    while (opened_ < part_.ranges.size()) {
      const InputFile& file = files_[opened_];
      const bool needed = readers_.empty();
      const bool has_room = file.object && !has_columns(file.format) &&
                            ahead + bytes(opened_) <= kBytesAhead &&
                            readers_.size() < kReadersAhead;
      if (!needed && !has_room) break;
      ahead += needed ? 0 : bytes(opened_);
      readers_.push_back(
          do_on(file, [&] { return open_range(file, part_.ranges[opened_], options_); }));
      ++opened_;
    }
  }

  /// Begins to check that an object has not been replaced since it was found.
  void prove_object(const InputFile& file) {
    if (!file.object) return;
    if (!provers_) provers_.emplace(kProvers);
    proofs_.push_back(provers_->add(
        [object = file.object] { object->store->prove_unchanged(object->info); }));
  }

  std::vector<InputFile> files_;  // one file for each range
  InputOptions options_;
  InputPart part_;
  std::unique_ptr<RangeReader> reader_;
  std::deque<std::unique_ptr<RangeReader>> readers_;  ///< of the ranges behind it
  size_t opened_ = 0;                                 ///< ranges that have had a reader
  std::vector<FinishedRange> finished_;
  std::vector<std::future<void>> proofs_;
  int64_t records_ = 0;
  uint64_t done_ = 0;
  /// This member is the last one, so that its threads end before the members that they
  /// use are destroyed.
  std::optional<system::WorkerPool> provers_;
};

}  // namespace

std::string InputFile::version() const {
  return object ? object->info.version : std::to_string(modified_ns);
}

InputSet::InputSet(InputOptions options) : options_(std::move(options)) {
  FoundInputs found = find_input_files(options_);
  files_ = std::move(found.files);
  if (!found.passed_over.empty()) passed_over_ = describe_passed_over(found.passed_over);
  const char delimiter = options_.delimiter;
  if (delimiter == '"' || delimiter == '\n' || delimiter == '\r' || delimiter < 0) {
    fail_input("data",
               "the byte 0x{:02x} cannot separate fields of CSV; choose a comma, a tab "
               "or the like",
               static_cast<unsigned char>(delimiter));
  }
  check_options_have_a_use(options_, files_);
  for (const InputFile& file : files_) stored_bytes_ += file.stored_bytes;
}

std::vector<InputPart> InputSet::parts(uint64_t about_bytes) const {
  about_bytes = std::max<uint64_t>(about_bytes, 1);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < files_.size(); ++i) {
    const InputFile& file = files_[i];
    const auto index = static_cast<int>(i);
    const bool small = file.stored_bytes <= about_bytes;
    if (!small && file.format == InputFormat::JsonLines &&
        file.compression == Compression::None) {
      add_byte_ranges(index, file.stored_bytes, about_bytes, pieces);
    } else if (!small && file.format == InputFormat::Parquet) {
      add_runs(index, do_on(file, [&] { return parquet_group_bytes(file, options_); }),
               about_bytes, pieces);
    } else if (!small && file.format == InputFormat::Arrow) {
      add_runs(index, do_on(file, [&] { return arrow_batch_bytes(file, options_); }),
               about_bytes, pieces);
    } else {
      pieces.push_back({{index, 0, InputRange::kToEnd}, file.stored_bytes});
    }
  }
  std::vector<InputPart> parts;
  for (const Piece& piece : pieces) {
    if (parts.empty() || parts.back().stored_bytes + piece.bytes > about_bytes) {
      parts.emplace_back();
    }
    parts.back().ranges.push_back(piece.range);
    parts.back().stored_bytes += piece.bytes;
  }
  return parts;
}

std::unique_ptr<RecordReader> InputSet::open(const InputPart& part) const {
  return std::make_unique<PartReader>(*this, part);
}

uint64_t InputSet::reader_bytes(const InputPart& part) const {
  uint64_t most = 0;
  for (const InputRange& range : part.ranges) {
    const InputFile& file = files_.at(static_cast<size_t>(range.file));
    uint64_t bytes = options_.max_record_bytes;
    if (file.format == InputFormat::Parquet) {
      bytes = parquet_reader_bytes(file, range, options_);
    } else if (file.format == InputFormat::Arrow) {
      bytes = arrow_reader_bytes(file, range, options_);
    }
    if (file.object) {
      bytes += std::min(kObjectReaderBytes, file.stored_bytes) + kBytesAhead;
    }
    most = std::max(most, bytes);
  }
  return most;
}

std::string InputSet::fingerprint() const {
  Json identity = {{"field", options_.field},
                   {"delimiter", static_cast<int>(options_.delimiter)},
                   {"max_record_bytes", options_.max_record_bytes},
                   {"files", Json::array()}};
  if (options_.chats) identity["field"] = "a chat";
  for (const InputFile& file : files_) {
    Json entry = {fs::absolute(file.path).string(), file.stored_bytes, file.modified_ns,
                  format_name(file.format), static_cast<int>(file.compression)};
    if (file.object) {
      entry[0] = file.path.string();
      entry[2] = file.version();
    }
    identity["files"].push_back(std::move(entry));
  }
  return hash_hex(json_text(identity));
}

int64_t InputSet::lines_before(int file, uint64_t begin) const {
  const InputFile& found = files_.at(static_cast<size_t>(file));
  if (begin == 0 || found.format != InputFormat::JsonLines) return 0;
  const StoredFile open(found, 0, begin);
  const uint64_t size = std::min(begin, open.size());
  std::vector<char> piece(size_t{1} << 20);
  int64_t lines = 0;
  for (uint64_t at = 0; at < size; at += piece.size()) {
    const std::span<char> part = std::span(piece).first(
        static_cast<size_t>(std::min<uint64_t>(piece.size(), size - at)));
    open.read_at(at, part);
    lines += std::count(part.begin(), part.end(), '\n');
  }
  return lines;
}

std::string InputSet::describe(const RecordPlace& place) const {
  const InputFile& file = files_.at(static_cast<size_t>(place.file));
  std::string path = file.path.string();
  switch (file.format) {
    case InputFormat::Text:
      return path;
    case InputFormat::Parquet:
    case InputFormat::Arrow:
      return fmt::format("{}: row {}", path, place.line);
    default:
      return fmt::format("{}:{}", path,
                         lines_before(place.file, place.range_begin) + place.line);
  }
}

}  // namespace longhaul::data
