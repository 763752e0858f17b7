#pragma once

#include "longhaul/data/input/byte_stream.h"
#include "longhaul/data/input/range_reader.h"

namespace longhaul::data {

/// The base class of readers of text, JSON lines and CSV. It reads the content of a file
/// piece by piece, and lets a record grow up to the limit.
class TextStream : public RangeReader {
 public:
  uint64_t bytes_read() const override { return file_.offset(); }
  FinishedRange finish() override {
    return {{}, file_.hashed_bytes(), file_.hash(), 0, lines_};
  }

 protected:
  /// Opens a file at byte `from`. Bytes [begin, end) belong to the range and are hashed.
  TextStream(const InputFile& file, const InputOptions& options, uint64_t from = 0,
             uint64_t begin = 0, uint64_t end = UINT64_MAX)
      : file_(file, begin, end),
        stream_(open_bytes(file_, from)),
        position_(from),
        limit_(options.max_record_bytes) {}

  /// Makes sure that rest_ has bytes. Returns false at the end of the file.
  bool fill() {
    if (rest_.empty()) rest_ = stream_->next();
    return !rest_.empty();
  }
  void drop(size_t count) {
    rest_ = rest_.subspan(count);
    position_ += count;
  }
  /// Refuses data that are no text, and skips a byte order mark, at the start of the
  /// file.
  void begin_text();
  /// Appends a piece to the record's bytes. A record above the limit becomes a bad
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
