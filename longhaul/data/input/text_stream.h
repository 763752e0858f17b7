#pragma once

#include "longhaul/data/input/byte_stream.h"
#include "longhaul/data/input/range_reader.h"

namespace longhaul::data {

/// The base of readers of text: reads the content of a file piece by piece, and lets a
/// record grow up to the limit.
class TextStream : public RangeReader {
 public:
  uint64_t bytes_read() const override { return file_.offset(); }
  FinishedRange finish() override {
    return {{}, file_.hashed_bytes(), file_.hash(), 0, lines_};
  }

 protected:
  /// Reads from byte `from` on; bytes [begin, end) belong to the range and are hashed.
  TextStream(const InputFile& file, const InputOptions& options, uint64_t from = 0,
             uint64_t begin = 0, uint64_t end = UINT64_MAX)
      : file_(file, begin, end),
        stream_(open_bytes(file_, from)),
        position_(from),
        limit_(options.max_record_bytes) {}

  /// Makes sure that rest_ has bytes; false at the end of the file.
  bool fill() {
    if (rest_.empty()) rest_ = stream_->next();
    return !rest_.empty();
  }
  void drop(size_t count) {
    rest_ = rest_.subspan(count);
    position_ += count;
  }
  /// At the start of the file: refuses data that are no text, and passes over a byte
  /// order mark.
  void begin_text();
  /// Appends a piece to the record's bytes. Above the limit the record becomes a bad
  /// record.
  void keep(RawRecord& record, std::span<const char> piece) const;

  StoredFile file_;
  std::unique_ptr<ByteStream> stream_;
  std::span<const char> rest_;
  uint64_t position_;  // place of rest_ in the decompressed file
  uint64_t limit_;
  int64_t lines_ = 0;  // line ends in this range
};

}  // namespace longhaul::data
