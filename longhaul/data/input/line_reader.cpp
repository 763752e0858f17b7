// Reads text files, each of which is one record, and JSON lines.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/text_stream.h"

namespace longhaul::data {

void refuse_packed(const StoredFile& file, std::span<const char> first) {
  if (file.compression() != Compression::None) return;
  const std::string_view bytes(first.data(), first.size());
  if (bytes.starts_with("\x1F\x8B")) {
    file.fail("gzip data in a file whose name does not say so", 0, "name it *.gz");
  }
  if (bytes.starts_with("\x28\xB5\x2F\xFD")) {
    file.fail("zstd data in a file whose name does not say so", 0, "name it *.zst");
  }
  if (bytes.starts_with("PAR1")) {
    file.fail("Parquet data in a file whose name does not say so", 0,
              "name it *.parquet");
  }
  if (bytes.starts_with("ARROW1")) {
    file.fail("Arrow data in a file whose name does not say so", 0, "name it *.arrow");
  }
}

namespace {

class TextReader final : public TextStream {
 public:
  TextReader(const InputFile& file, const InputOptions& options)
      : TextStream(file, options) {}

  bool next(RawRecord& record) override {
    if (done_) return false;
    done_ = true;
    record.form = RawRecord::Form::WholeFile;
    record.place.offset = 0;
    if (fill()) refuse_packed(file_, rest_);
    for (; fill(); drop(rest_.size())) {
      lines_ += std::count(rest_.begin(), rest_.end(), '\n');
      keep(record, rest_);
    }
    if (record.bytes.starts_with(kByteOrderMark)) record.bytes.erase(0, 3);
    return true;
  }

 private:
  bool done_ = false;
};

/// Reads the lines that start in bytes [begin, end) of a file, or all lines of a
/// compressed file.
class JsonLineReader final : public TextStream {
 public:
  JsonLineReader(const InputFile& file, const InputRange& range,
                 const InputOptions& options)
      // The byte before `begin` tells whether a line starts at `begin`.
      : TextStream(file, options, range.begin == 0 ? 0 : range.begin - 1, range.begin,
                   range.end),
        begin_(range.begin),
        end_(range.end) {
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

 private:
  void start() {
    started_ = true;
    if (begin_ > 0) {
      take_line(nullptr);
      line_begin_ = position_;
      // The line may end right before this range, and then it belongs to another range.
      if (position_ == begin_) {
        lines_ = 0;
        line_ = 1;
      }
    } else {
      begin_text();
    }
  }

  /// Moves past the end of the line. Appends the line to `record` unless `record` is
  /// null.
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

  uint64_t begin_;
  uint64_t end_;
  uint64_t line_begin_ = 0;  // begin of the next record, before a byte order mark
  int64_t line_ = 1;         // line of the next record; begin_ lies on line 1
  bool started_ = false;
};

}  // namespace

void TextStream::begin_text() {
  if (!fill()) return;
  refuse_packed(file_, rest_);
  if (std::string_view(rest_.data(), rest_.size()).starts_with(kByteOrderMark)) {
    drop(kByteOrderMark.size());
  }
}

void TextStream::keep(RawRecord& record, std::span<const char> piece) const {
  if (record.problem != RecordProblem::None) return;
  if (record.bytes.size() + piece.size() > limit_) {
    record.problem = RecordProblem::TooLong;
    record.detail = too_long_detail(limit_);
    record.bytes = {};
    return;
  }
  if (record.bytes.empty()) record.bytes.reserve(piece.size() + kParserPadding);
  record.bytes.append(piece.data(), piece.size());
}

std::string too_long_detail(uint64_t limit) {
  return fmt::format("more than {}; split it into documents", human_bytes(limit));
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
