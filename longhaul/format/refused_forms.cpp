#include "longhaul/format/refused_forms.h"

#include <algorithm>

namespace longhaul::format {
namespace {

constexpr const char* kGguf =
    "GGUF files are for inference; take the safetensors from which they were made, with "
    "their config.json, or make a directory of the file (longhaul import FILE.gguf)";
constexpr const char* kAdapter =
    "the directory of an adapter (LoRA), without the model's own weights; name its base "
    "model, and the adapter with init.adapter or --adapter";

bool holds_gguf(const fs::path& dir) {
  return std::ranges::any_of(
      paths_in(dir), [](const fs::path& path) { return path.extension() == ".gguf"; });
}

}  // namespace

std::string other_form(const fs::path& path) {
  if (!is_seen_directory(path)) return path.extension() == ".gguf" ? kGguf : "";
  if (is_seen(path / "adapter_config.json")) return kAdapter;
  return holds_gguf(path) ? kGguf : "";
}

}  // namespace longhaul::format
