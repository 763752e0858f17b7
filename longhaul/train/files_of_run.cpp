#include <fmt/format.h>

#include <algorithm>

#include "longhaul/data/sources/open_source.h"
#include "longhaul/train/session.h"

namespace longhaul::train {
namespace {

const char* hf_dtype(DType dtype) { return dtype == DType::F32 ? "float32" : "bfloat16"; }

bool has_tokenizer(const std::vector<checkpoint::CarriedFile>& files) {
  return std::any_of(files.begin(), files.end(),
                     [](const auto& file) { return file.name.starts_with("tokenizer"); });
}

/// Small files that belong to a model's directory.
std::vector<checkpoint::CarriedFile> small_files(const fs::path& dir) {
  std::vector<checkpoint::CarriedFile> files;
  for (const char* name :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "tokenizer.model", "LICENSE", "LICENSE.txt", "NOTICE",
        "USE_POLICY.md"}) {
    if (fs::is_regular_file(dir / name)) files.push_back({name, dir / name, {}});
  }
  return files;
}

}  // namespace

std::vector<checkpoint::CarriedFile> files_of_run(const Session& session) {
  const RunConfig& config = session.config;
  std::vector<checkpoint::CarriedFile> files;
  if (!config.init.weights.empty()) {
    files = checkpoint::WeightsSource::open(config.init.weights)->files_to_carry();
    std::erase_if(files, [](const auto& file) { return file.name == "config.json"; });
  } else {
    files = small_files(session.model_config.source_path.parent_path());
  }
  if (!has_tokenizer(files)) {
    for (const TrainSource& source : config.data.train) {
      for (const fs::path& path : data::expand_paths(source.path.entries)) {
        if (has_tokenizer(files)) break;
        const auto more = small_files(path / "tokenizer");
        if (has_tokenizer(more)) files.insert(files.end(), more.begin(), more.end());
      }
    }
  }
  files.push_back(
      {"config.json",
       {},
       to_hf_config_json(session.model_config, hf_dtype(session.policy.compute))});
  return files;
}

}  // namespace longhaul::train
