#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/record.h"
#include "longhaul/data/input/stored_file.h"

namespace longhaul::data {

/// Reads the records of one range of one file. Not thread-safe.
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  /// Fills a record that was cleared, all but place.file and place.range_begin; false at
  /// the end.
  virtual bool next(RawRecord& record) = 0;
  virtual uint64_t bytes_read() const = 0;
  /// After next() gave false: what was read, all but `records`.
  virtual FinishedRange finish() = 0;
};

/// A text file is one record.
std::unique_ptr<RangeReader> open_text(const InputFile& file, const InputRange& range,
                                       const InputOptions& options);
std::unique_ptr<RangeReader> open_json_lines(const InputFile& file,
                                             const InputRange& range,
                                             const InputOptions& options);
std::unique_ptr<RangeReader> open_csv(const InputFile& file, const InputRange& range,
                                      const InputOptions& options);
std::unique_ptr<RangeReader> open_parquet(const InputFile& file, const InputRange& range,
                                          const InputOptions& options);
std::unique_ptr<RangeReader> open_arrow(const InputFile& file, const InputRange& range,
                                        const InputOptions& options);

/// Stored bytes of each row group, of each record batch.
std::vector<uint64_t> parquet_group_bytes(const InputFile& file,
                                          const InputOptions& options);
std::vector<uint64_t> arrow_batch_bytes(const InputFile& file,
                                        const InputOptions& options);

/// What a reader of the range holds at a time, about, unpacked and decoded, as the
/// metadata say: of the largest row group, of the largest record batch. They may lie.
uint64_t parquet_reader_bytes(const InputFile& file, const InputRange& range,
                              const InputOptions& options);
uint64_t arrow_reader_bytes(const InputFile& file, const InputRange& range,
                            const InputOptions& options);
/// Of what follows from no metadata: buffers, decoded rows, what grows.
inline constexpr uint64_t kReaderBuffers = uint64_t{32} << 20;

/// InputError for a packed file, or one of columns, that goes by the name of a text file.
void refuse_packed(const StoredFile& file, std::span<const char> first);

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Beyond a string's own bytes, for the parser.
inline constexpr size_t kParserPadding = 64;

/// What a record above the limit is told.
std::string too_long_detail(uint64_t limit);

}  // namespace longhaul::data
