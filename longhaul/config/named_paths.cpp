#include "longhaul/config/named_paths.h"

namespace longhaul {

std::vector<NamedPath> named_paths(const RunConfig& config) {
  using enum PathUse;
  std::vector<NamedPath> found;
  const auto add = [&](const char* key, const fs::path& path, PathUse use = Reads,
                       bool may_be_pattern = false) {
    if (!path.empty()) found.push_back({key, path, use, may_be_pattern});
  };
  const auto add_data = [&](const char* key, const auto& sources) {
    for (const auto& source : sources) {
      for (const fs::path& entry : source.path.entries) add(key, entry, Reads, true);
    }
  };
  add("run.dir", config.run.dir, Writes);
  add("run.device_plugin", config.run.device_plugin, ReadsSometimes);
  add("run.compile_cache_dir", config.run.compile_cache_dir, Writes);
  add("run.compile_cache_from", config.run.compile_cache_from);
  add("run.hardware", config.run.hardware);
  if (config.run.golden) add("run.golden.file", config.run.golden->file, ReadsSometimes);
  add("model.config", config.model.config);
  add("init.weights", config.init.weights);
  add("init.adapter", config.init.adapter);
  add_data("data.train", config.data.train);
  add("data.cache", config.data.cache, Writes);
  add_data("data.validation", config.data.validation);
  add("checkpoint.resume", config.checkpoint.resume.path, ReadsSometimes);
  add("checkpoint.dir", config.checkpoint.dir, Writes);
  add("log.tensorboard_dir", config.log.tensorboard_dir, Writes);
  for (const TaskSource& task : config.validation.tasks) {
    add("validation.tasks", task.path, ReadsSometimes);
  }
  add("resilience.unhealthy_file", config.resilience.unhealthy_file, OfNodes);
  return found;
}

}  // namespace longhaul
