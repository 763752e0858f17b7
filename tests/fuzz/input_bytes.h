#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/data/input/range_reader.h"

namespace longhaul::data {

/// Bytes as an input file in memory.
class InputBytes {
 public:
  InputBytes(const uint8_t* data, size_t size) : fd_(::memfd_create("input", 0)) {
    for (size_t done = 0; done < size;) {
      const ssize_t count = ::write(fd_, data + done, size - done);
      if (count <= 0) __builtin_trap();
      done += static_cast<size_t>(count);
    }
    file_.path = "/proc/self/fd/" + std::to_string(fd_);
    file_.stored_bytes = size;
  }
  ~InputBytes() { ::close(fd_); }
  InputBytes(const InputBytes&) = delete;
  InputBytes& operator=(const InputBytes&) = delete;

  InputFile& file() { return file_; }

 private:
  int fd_;
  InputFile file_;
};

/// Reads all records of a file: a document, a named problem or an InputError comes out.
/// A text is not empty and valid UTF-8, ids are not negative. Returns how many records
/// came, -1 where the file was refused.
inline int64_t read_all_records(const InputFile& file, const InputRange& range,
                                const InputOptions& options) {
  using Open = std::unique_ptr<RangeReader> (*)(const InputFile&, const InputRange&,
                                                const InputOptions&);
  const Open open = file.format == InputFormat::Text        ? &open_text
                    : file.format == InputFormat::JsonLines ? &open_json_lines
                    : file.format == InputFormat::Csv       ? &open_csv
                    : file.format == InputFormat::Parquet   ? &open_parquet
                                                            : &open_arrow;
  int64_t records = 0;
  try {
    const auto reader = open(file, range, options);
    for (RawRecord record; reader->next(record); record.clear()) {
      ++records;
      const ParsedRecord parsed = parse_record(record, options);
      const bool has_document = !parsed.text.empty() || !parsed.ids.empty();
      if (has_document != (parsed.problem == RecordProblem::None)) __builtin_trap();
      for (const int32_t id : parsed.ids) {
        if (id < 0) __builtin_trap();
      }
      if (parsed.text.empty()) continue;
      RawRecord again;
      again.bytes = parsed.text;
      if (parse_record(again, options).problem == RecordProblem::InvalidUtf8) {
        __builtin_trap();
      }
    }
    if (reader->finish().hash.size() != 32) __builtin_trap();
  } catch (const InputError&) {
    return -1;
  }
  return records;
}

}  // namespace longhaul::data
