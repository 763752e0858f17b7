#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  /// Fills a cleared record, but not place.file and place.range_begin; returns false at
  /// the end.
  virtual bool next(RawRecord& record) = 0;
  virtual uint64_t bytes_read() const = 0;
  /// Returns what was read, after next() has returned false. Does not fill `range` and
  /// `records`.
  virtual FinishedRange finish() = 0;
};

/// Opens a text file, which is one record.
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

/// Returns the stored bytes of each row group (Parquet) or record batch (Arrow).
std::vector<uint64_t> parquet_group_bytes(const InputFile& file,
                                          const InputOptions& options);
std::vector<uint64_t> arrow_batch_bytes(const InputFile& file,
                                        const InputOptions& options);

/// The rows of an Arrow file, and the columns whose types were examined.
struct EvenRows {
  int64_t rows = 0;
  std::string columns = {};  ///< their names and types
};
/// Returns the number of rows of a stream of Arrow without reading its values. Looks at
/// the column options.field and at those columns of `more` that the file has. Each must
/// hold lists of integers without nulls, with `length` values for each row of a record
/// batch. Returns nothing if a column does not, or if the file is compressed, is no
/// stream, or lacks options.field.
std::optional<EvenRows> even_arrow_rows(const InputFile& file,
                                        const InputOptions& options,
                                        const std::vector<std::string>& more,
                                        int64_t length);

/// Returns about how much memory a reader of the range needs for the largest row group or
/// record batch, unpacked and decoded. The metadata say so and may be wrong.
uint64_t parquet_reader_bytes(const InputFile& file, const InputRange& range,
                              const InputOptions& options);
uint64_t arrow_reader_bytes(const InputFile& file, const InputRange& range,
                            const InputOptions& options);
/// Memory of a reader that the metadata do not show: buffers, decoded rows, vectors that
/// grow.
inline constexpr uint64_t kReaderBuffers = uint64_t{32} << 20;

/// Throws InputError when a file with the name of a text file holds compressed data,
/// Parquet or Arrow. `first` is the beginning of the file.
void refuse_packed(const StoredFile& file, std::span<const char> first);

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Bytes after the end of a string that the JSON parser may read.
inline constexpr size_t kParserPadding = 64;

/// Returns the message about a record above the limit.
std::string too_long_detail(uint64_t limit);

}  // namespace longhaul::data
