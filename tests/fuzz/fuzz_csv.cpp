#include "tests/fuzz/input_bytes.h"

// Reads any bytes as a CSV file; the first byte chooses the separator.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul::data;
  if (size == 0) return 0;
  InputOptions options;
  options.delimiter = data[0] % 2 == 0 ? ',' : '\t';
  options.max_record_bytes = 256;
  InputBytes bytes(data + 1, size - 1);
  bytes.file().format = InputFormat::Csv;
  read_all_records(bytes.file(), {}, options);
  return 0;
}
