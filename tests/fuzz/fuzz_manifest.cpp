#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/rank_file.h"
#include "longhaul/format/safetensors.h"

namespace {

using namespace longhaul;

// Checks that names do not leave their directory, and that what was read is written again
// the same.
void as_manifest(std::string_view text) {
  const auto manifest = checkpoint::Manifest::from_json(parse_json(text, "fuzz"), "fuzz");
  for (const auto& file : manifest.files()) join_inside("/step", file.name, "fuzz");
  const Json again = manifest.to_json();
  if (checkpoint::Manifest::from_json(again, "fuzz").to_json() != again) std::abort();
}

// Checks that every box lies in its tensor and in the file.
void as_sidecar(std::string_view text, uint64_t data_size) {
  const auto sidecar = checkpoint::Sidecar::parse(text, data_size, "fuzz");
  for (const auto& box : sidecar.boxes) {
    uint64_t bytes = 0;
    if (!format::tensor_bytes(box.slice.extent, box.slice.dtype, &bytes)) std::abort();
    if (box.begin > data_size || bytes > data_size - box.begin) std::abort();
    box.slice.check();
  }
}

}  // namespace

// Takes any bytes for a checkpoint's manifest and for a rank's sidecar. The result is a
// clear InputError, or an object that keeps its promises.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    as_manifest(text);
  } catch (const InputError&) {
  }
  for (const uint64_t data_size : {uint64_t{0}, uint64_t{1000}, uint64_t{3} << 20}) {
    try {
      as_sidecar(text, data_size);
    } catch (const InputError&) {
    }
  }
  return 0;
}
