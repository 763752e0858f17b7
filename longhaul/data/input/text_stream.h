#pragma once

#include "longhaul/data/input/byte_stream.h"
#include "longhaul/data/input/range_reader.h"

namespace longhaul::data {

/// What readers of text have in common: the content of a file piece by piece, and a
/// record that grows up to the limit.
class TextStream : public RangeReader {
 public:
  uint64_t bytes_read() const override { return file_.offset(); }
  FinishedRange finish() override {
    return {{}, file_.hashed_bytes(), file_.hash(), 0, lines_};
  }

 protected:
  /// From byte `from` on; bytes [begin, end) are the range's.
  TextStream(const InputFile& file, const InputOptions& options, uint64_t from = 0,
             uint64_t begin = 0, uint64_t end = UINT64_MAX)
      : file_(file, begin, end),
        stream_(file_, from),
        position_(from),
        limit_(options.max_record_bytes) {}

  /// False at the end of the file.
  bool fill() {
    if (rest_.empty()) rest_ = stream_.next();
    return !rest_.empty();
  }
  void drop(size_t count) {
    rest_ = rest_.subspan(count);
    position_ += count;
  }
  /// At the start of the file: refuses what is no text, passes over a byte order mark.
  void begin_text();
  /// Appends a piece to the record's bytes, which above the limit is a bad one.
  void keep(RawRecord& record, std::span<const char> piece) const;

  StoredFile file_;
  ByteStream stream_;
  std::span<const char> rest_;
  uint64_t position_;  // of rest_, after decompression
  uint64_t limit_;
  int64_t lines_ = 0;  // line ends that are this range's
};

}  // namespace longhaul::data
