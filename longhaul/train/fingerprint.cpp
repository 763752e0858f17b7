#include "longhaul/train/fingerprint.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

namespace longhaul::train {

Json numerics_fingerprint(const std::string& layout) {
  return {{"instruction_set", at::get_cpu_capability()},
          {"threads", at::get_num_threads()},
          {"libtorch", TORCH_VERSION},
          {"layout", layout}};
}

std::optional<std::string> fingerprint_difference(const Json& saved, const Json& now) {
  std::string lines;
  for (const auto& [key, value] : now.items()) {
    if (!saved.contains(key) || saved[key] != value) {
      lines += fmt::format("{}{} was {}, is {}", lines.empty() ? "" : "; ", key,
                           saved.contains(key) ? saved[key].dump() : "not recorded",
                           value.dump());
    }
  }
  if (lines.empty()) return std::nullopt;
  return lines;
}

}  // namespace longhaul::train
