#include "longhaul/train/log/files_of_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/format/side_files.h"
#include "longhaul/train/start/staged_inputs.h"

namespace longhaul::train {
namespace {

using checkpoint::CarriedFile;

const char* hf_dtype(format::DType dtype) {
  return dtype == format::DType::F32 ? "float32" : "bfloat16";
}

bool has_tokenizer(const std::vector<CarriedFile>& files) {
  std::vector<std::string> names;
  for (const CarriedFile& file : files) names.push_back(file.name);
  return longhaul::format::has_tokenizer(names);
}

std::vector<CarriedFile> files_in(const fs::path& dir) {
  std::vector<CarriedFile> files;
  if (!fs::is_directory(dir)) return files;
  for (const std::string& name : format::hf_side_files(dir)) {
    files.push_back({name, dir / name, {}});
  }
  return files;
}

/// Adds the files that `files` lack: a tokenizer as a whole or not at all, other files by
/// name. Returns the names of the files that stay behind.
std::vector<std::string> add_missing(std::vector<CarriedFile>& files,
                                     std::vector<CarriedFile> more) {
  const bool tokenizer_known = has_tokenizer(files);
  std::vector<std::string> left;
  for (CarriedFile& file : more) {
    const bool known =
        (tokenizer_known && format::is_tokenizer_side_file(file.name)) ||
        std::ranges::any_of(files, [&](const auto& f) { return f.name == file.name; });
    if (known) {
      left.push_back(file.name);
    } else {
      files.push_back(std::move(file));
    }
  }
  return left;
}

/// Adds the files beside the run's config.json that `files` lack.
void add_files_of_config(const TrainingSession& session, system::Logger& log,
                         std::vector<CarriedFile>& files) {
  const RunConfig& config = session.config();
  const fs::path dir = session.model().source_path.parent_path();
  std::error_code error;
  if (fs::equivalent(dir, session.objects().readable(config.init.weights), error)) return;
  std::vector<CarriedFile> around = files_in(dir);
  std::erase_if(around, [](const auto& file) { return file.name == "config.json"; });
  const auto left = add_missing(files, std::move(around));
  if (!left.empty()) {
    log.info(fmt::format(
        "checkpoints carry the files beside the weights; the files of {} stay behind: {}",
        dir.string(), fmt::join(left, ", ")));
  }
  const auto others = format::files_left_behind(dir, {});
  if (config.init.weights.empty() && !others.empty()) {
    log.info(fmt::format("checkpoints do not carry from {}: {}", dir.string(),
                         fmt::join(others, ", ")));
  }
}

}  // namespace

std::vector<CarriedFile> files_of_run(const TrainingSession& session,
                                      system::Logger& log) {
  const RunConfig& config = session.config();
  std::vector<CarriedFile> files;
  if (!config.init.weights.empty()) {
    const fs::path weights = session.objects().readable(config.init.weights);
    files = checkpoint::WeightsSource::open(weights)->files_to_carry();
    std::erase_if(files, [](const auto& file) { return file.name == "config.json"; });
  }
  add_files_of_config(session, log, files);
  for (const TrainSource& source : config.data.train) {
    if (has_tokenizer(files)) break;
    for (const fs::path& path : local_paths(source.path, session.objects())) {
      if (has_tokenizer(files)) break;
      add_missing(files, files_in(path / "tokenizer"));
    }
  }
  files.push_back(
      {"config.json",
       {},
       to_hf_config_json(session.model(), hf_dtype(session.machine().policy.compute))});
  return files;
}

}  // namespace longhaul::train
