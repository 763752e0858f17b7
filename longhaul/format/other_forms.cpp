#include "longhaul/format/other_forms.h"

#include <system_error>

namespace longhaul::format {
namespace {

constexpr const char* kGguf =
    "GGUF files are for inference; take the safetensors from which they were made, with "
    "their "
    "config.json";
constexpr const char* kAdapter =
    "the directory of an adapter (LoRA), without the model's own weights; merge the "
    "adapter "
    "into its base model first (peft: merge_and_unload(), then save_pretrained())";

bool holds_gguf(const fs::path& dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (entry.path().extension() == ".gguf") return true;
  }
  return false;
}

}  // namespace

std::string other_form(const fs::path& path) {
  if (!is_seen_directory(path)) return path.extension() == ".gguf" ? kGguf : "";
  if (is_seen(path / "adapter_config.json")) return kAdapter;
  return holds_gguf(path) ? kGguf : "";
}

}  // namespace longhaul::format
