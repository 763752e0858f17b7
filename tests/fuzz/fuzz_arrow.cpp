#include "tests/fuzz/input_bytes.h"

// Reads any bytes as an Arrow stream or file, of text and of ids.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul::data;
  InputBytes bytes(data, size);
  bytes.file().format = InputFormat::Arrow;
  for (const char* const field : {"text", "input_ids"}) {
    InputOptions options;
    options.field = field;
    options.max_batch_bytes = uint64_t{64} << 20;
    read_all_records(bytes.file(), {}, options);
    read_all_records(bytes.file(), {0, 1, InputRange::kToEnd}, options);
  }
  return 0;
}
