// Takes any bytes for a safetensors file. The result is a clear InputError, or a header
// whose tensors lie in the file without overlap.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "longhaul/base/error.h"
#include "longhaul/format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  try {
    const format::SafetensorsHeader header = format::parse_safetensors_header(
        std::as_bytes(std::span(data, size)), size, "fuzz");
    uint64_t position = 0;
    for (const format::SafetensorsEntry& entry : header.entries) {
      if (entry.begin != position || entry.end < entry.begin) std::abort();
      position = entry.end;
    }
    if (header.data_start + position != size) std::abort();
  } catch (const InputError&) {
  }
  return 0;
}
