#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/hf/peft.h"

// Takes any bytes for an adapter_config.json. The result is a clear InputError, or an
// adapter whose scale is a positive number.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const AdapterSection section =
        checkpoint::parse_peft_config(text, "/adapter/adapter_config.json");
    const double scale = section.scale();
    if (!std::isfinite(scale) || scale <= 0.0) std::abort();
  } catch (const InputError&) {
  }
  return 0;
}
