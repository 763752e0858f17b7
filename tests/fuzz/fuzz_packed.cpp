#include "tests/fuzz/input_bytes.h"

// Reads any bytes as gzip and as zstd around JSON lines. Also cuts the bytes, as plain
// JSON lines, into two ranges at any byte, which must give the records of the whole.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul::data;
  InputOptions options;
  options.max_record_bytes = 4096;
  InputBytes bytes(data, size);
  bytes.file().format = InputFormat::JsonLines;
  for (const Compression packed : {Compression::Gzip, Compression::Zstd}) {
    bytes.file().compression = packed;
    read_all_records(bytes.file(), {}, options);
  }
  bytes.file().compression = Compression::None;
  const int64_t whole = read_all_records(bytes.file(), {0, 0, size}, options);
  const uint64_t cut = size == 0 ? 0 : data[size / 2] % size;
  const int64_t first = read_all_records(bytes.file(), {0, 0, cut}, options);
  const int64_t second = read_all_records(bytes.file(), {0, cut, size}, options);
  if (whole >= 0 && cut > 0 && first + second != whole) __builtin_trap();
  return 0;
}
