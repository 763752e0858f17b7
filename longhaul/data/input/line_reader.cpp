// Text files, each one record, and JSON lines.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/byte_stream.h"
#include "longhaul/data/input/range_reader.h"
#include "longhaul/data/input/stored_file.h"

namespace longhaul::data {

void refuse_packed(const StoredFile& file, std::span<const char> first) {
  if (file.compression() != Compression::None) return;
  const std::string_view bytes(first.data(), first.size());
  if (bytes.starts_with("\x1F\x8B")) {
    file.fail("gzip data in a file that is not named so", 0, "name it *.gz");
  }
  if (bytes.starts_with("\x28\xB5\x2F\xFD")) {
    file.fail("zstd data in a file that is not named so", 0, "name it *.zst");
  }
  if (bytes.starts_with("PAR1")) {
    file.fail("Parquet data in a file that is not named so", 0, "name it *.parquet");
  }
  if (bytes.starts_with("ARROW1")) {
    file.fail("Arrow data in a file that is not named so", 0, "name it *.arrow");
  }
}

namespace {

class TextReader final : public RangeReader {
 public:
  TextReader(const InputFile& file, const InputOptions& options)
      : file_(file), stream_(file_), limit_(options.max_record_bytes) {}

  bool next(RawRecord& record) override {
    if (done_) return false;
    done_ = true;
    record.form = RawRecord::Form::WholeFile;
    record.place.offset = 0;
    bool first = true;
    for (auto piece = stream_.next(); !piece.empty(); piece = stream_.next()) {
      if (first) refuse_packed(file_, piece);
      first = false;
      lines_ += std::count(piece.begin(), piece.end(), '\n');
      if (record.problem != RecordProblem::None) continue;
      if (record.bytes.size() + piece.size() > limit_) {
        record.problem = RecordProblem::TooLong;
        record.detail = too_long_detail(limit_);
        record.bytes = {};
      } else {
        record.bytes.append(piece.data(), piece.size());
      }
    }
    if (record.bytes.starts_with(kByteOrderMark)) record.bytes.erase(0, 3);
    return true;
  }
  uint64_t bytes_read() const override { return file_.offset(); }
  FinishedRange finish() override {
    return {{}, file_.hashed_bytes(), file_.hash(), 0, lines_};
  }

 private:
  StoredFile file_;
  ByteStream stream_;
  uint64_t limit_;
  int64_t lines_ = 0;
  bool done_ = false;
};

/// The lines that start in [begin, end): byte offsets where the file is not compressed,
/// else the whole.
class JsonLineReader final : public RangeReader {
 public:
  JsonLineReader(const InputFile& file, const InputRange& range,
                 const InputOptions& options)
      : begin_(range.begin),
        end_(range.end),
        file_(file, range.begin, range.end),
        // The byte before tells whether a line starts at begin.
        stream_(file_, range.begin == 0 ? 0 : range.begin - 1),
        position_(range.begin == 0 ? 0 : range.begin - 1),
        limit_(options.max_record_bytes) {
    LH_CHECK(file.compression == Compression::None || (begin_ == 0 && end_ > 0), "data",
             "{}: a range of a compressed file", file.path.string());
  }

  bool next(RawRecord& record) override {
    if (!started_) start();
    if (line_begin_ >= end_ || !fill()) return false;
    record.form = RawRecord::Form::JsonLine;
    record.place.line = line_;
    record.place.offset = static_cast<int64_t>(position_);
    take_line(&record);
    line_begin_ = position_;
    if (!record.bytes.empty() && record.bytes.back() == '\r') record.bytes.pop_back();
    return true;
  }
  uint64_t bytes_read() const override {
    return file_.offset() <= begin_ ? 0 : file_.offset() - begin_;
  }
  FinishedRange finish() override {
    return {{}, file_.hashed_bytes(), file_.hash(), 0, lines_};
  }

 private:
  /// False at the end of the file.
  bool fill() {
    if (rest_.empty()) rest_ = stream_.next();
    return !rest_.empty();
  }

  void start() {
    started_ = true;
    if (begin_ > 0) {
      take_line(nullptr);
      line_begin_ = position_;
      // Its end may be the byte before the range, which belongs to another.
      if (position_ == begin_) {
        lines_ = 0;
        line_ = 1;
      }
    } else if (fill()) {
      refuse_packed(file_, rest_);
      if (std::string_view(rest_.data(), rest_.size()).starts_with(kByteOrderMark)) {
        drop(kByteOrderMark.size());
      }
    }
  }

  void drop(size_t count) {
    rest_ = rest_.subspan(count);
    position_ += count;
  }

  /// Moves past the end of the line; keeps it where a record is given.
  void take_line(RawRecord* record) {
    while (fill()) {
      const auto* newline =
          static_cast<const char*>(std::memchr(rest_.data(), '\n', rest_.size()));
      const size_t length =
          newline == nullptr ? rest_.size() : static_cast<size_t>(newline - rest_.data());
      if (record != nullptr) keep(*record, rest_.first(length));
      drop(length);
      if (newline == nullptr) continue;
      if (position_ < end_) ++lines_;
      ++line_;
      drop(1);
      return;
    }
  }

  void keep(RawRecord& record, std::span<const char> piece) {
    if (record.problem != RecordProblem::None) return;
    const size_t length = record.bytes.size() + piece.size();
    if (length > limit_) {
      record.problem = RecordProblem::TooLong;
      record.detail = too_long_detail(limit_);
      record.bytes = {};
      return;
    }
    if (record.bytes.empty()) record.bytes.reserve(length + kParserPadding);
    record.bytes.append(piece.data(), piece.size());
  }

  uint64_t begin_;
  uint64_t end_;
  StoredFile file_;
  ByteStream stream_;
  std::span<const char> rest_;
  uint64_t position_;        // of rest_, after decompression
  uint64_t line_begin_ = 0;  // of the next record, before a byte order mark
  uint64_t limit_;
  int64_t line_ = 1;   // of the next record, from 1 on which begin_ lies
  int64_t lines_ = 0;  // line ends in [begin_, end_)
  bool started_ = false;
};

}  // namespace

std::string too_long_detail(uint64_t limit) {
  return fmt::format("more than {}; split it into documents",
                     human_bytes(static_cast<double>(limit)));
}

std::unique_ptr<RangeReader> open_text(const InputFile& file, const InputRange& range,
                                       const InputOptions& options) {
  LH_CHECK(range.begin == 0, "data", "{}: a range of a text file", file.path.string());
  return std::make_unique<TextReader>(file, options);
}

std::unique_ptr<RangeReader> open_json_lines(const InputFile& file,
                                             const InputRange& range,
                                             const InputOptions& options) {
  return std::make_unique<JsonLineReader>(file, range, options);
}

}  // namespace longhaul::data
