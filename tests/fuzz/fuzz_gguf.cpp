// Takes any bytes for a GGUF file. The result is a clear InputError, or a header whose
// tensors lie in the file without overlap, from which a config.json is made or refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/gguf/gguf_config.h"
#include "longhaul/format/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  try {
    const format::GgufHeader header =
        format::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz");
    uint64_t position = header.data_start;
    for (const format::GgufTensor& tensor : header.tensors) {
      const uint64_t begin = header.data_start + tensor.offset;
      if (begin < position || tensor.bytes() > size || begin > size - tensor.bytes()) {
        std::abort();
      }
      position = begin + tensor.bytes();
    }
    checkpoint::config_of_gguf(header, "fuzz");
  } catch (const InputError&) {
  }
  return 0;
}
