#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/format/hf_weights.h"

// Takes any bytes for a model.safetensors.index.json. The result is a clear InputError,
// or names of files that lie in the directory.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const format::HfIndex index =
        format::HfIndex::parse(text, "/model/model.safetensors.index.json");
    if (index.weight_map.empty()) std::abort();
    for (const auto& [tensor, file] : index.weight_map) {
      const fs::path path = ("/model" / fs::path(file)).lexically_normal();
      if (!path.string().starts_with("/model")) std::abort();
    }
  } catch (const InputError&) {
  }
  return 0;
}
