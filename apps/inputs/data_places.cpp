#include "apps/inputs/data_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>

#include "longhaul/base/error.h"
#include "longhaul/config/rules.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/input_directory.h"
#include "longhaul/data/input/path_pattern.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/store.h"
#include "longhaul/objects/address.h"

namespace longhaul::apps {
namespace {

/// Returns the paths that an entry of the data names on this machine; nothing if an error
/// prevents that. The start of the run reports the error.
std::vector<fs::path> named_by(const fs::path& entry) {
  try {
    return data::expand_paths({entry});
  } catch (const InputError&) {
    return {};
  }
}

/// Returns the files of a directory of files, such as JSON lines or shards. A path of any
/// other kind, and a directory that training refuses, stands for itself.
std::vector<fs::path> files_at(const fs::path& path) {
  try {
    if (data::names_bert_shards(path)) return data::find_bert_shards({path});
    if (fs::is_directory(path) && !data::is_token_store(path) &&
        !data::is_example_store(path)) {
      return data::files_of_directory(path, std::nullopt).paths;
    }
  } catch (const std::exception&) {  // the start says what is wrong
  }
  return {path};
}

/// Returns the address without slashes at its end. Text that is no valid address is
/// returned as it stands.
fs::path place_of_address(const fs::path& path) {
  try {
    return objects::parse_pattern(path).text();
  } catch (const InputError&) {
    return path;
  }
}

}  // namespace

fs::path place_of(const fs::path& path) {
  if (objects::is_address(path)) return place_of_address(path);
  std::error_code problem;
  fs::path place = fs::weakly_canonical(fs::absolute(path), problem);
  if (problem) place = fs::absolute(path).lexically_normal();
  return place.has_filename() ? place : place.parent_path();
}

std::vector<std::string> places_met_twice(const RunConfig& config) {
  std::vector<std::string> warnings;
  std::set<fs::path> places;
  std::set<fs::path> files;
  for (const TrainSource& source : config.data.train) {
    for (const fs::path& entry : source.path.entries) {
      for (const fs::path& path : named_by(entry)) {
        if (places.insert(place_of(path)).second) {
          for (const fs::path& file : files_at(path)) files.insert(place_of(file));
          continue;
        }
        warnings.push_back(fmt::format("{}: data.train lists {} twice",
                                       config::origin(config, "data.train"),
                                       path.string()));
      }
    }
  }
  for (const ValidationSource& source : config.data.validation) {
    for (const fs::path& entry : source.path.entries) {
      for (const fs::path& path : named_by(entry)) {
        const auto warn = [&](const char* what, const fs::path& met) {
          warnings.push_back(fmt::format(
              "{}: data.validation \"{}\" {} also trained on ({}); its loss says nothing "
              "about unseen text",
              config::origin(config, "data.validation"), source.name, what,
              met.string()));
        };
        if (places.contains(place_of(path))) {
          warn("is", path);
          continue;
        }
        const std::vector<fs::path> read = files_at(path);
        const auto met = std::ranges::find_if(
            read, [&](const fs::path& file) { return files.contains(place_of(file)); });
        if (met != read.end()) warn("has files that are", *met);
      }
    }
  }
  return warnings;
}

void warn_of_places(LoadedConfig& loaded) {
  for (std::string& warning : places_met_twice(loaded.config)) {
    loaded.warnings.push_back(std::move(warning));
  }
}

LoadedConfig load_with_places(const fs::path& file, std::span<const std::string> sets) {
  LoadedConfig loaded = load_run_config(file, sets);
  refuse_patterns(loaded.config);
  warn_of_places(loaded);
  return loaded;
}

void refuse_patterns(const RunConfig& config) {
  const auto look = [&](const fs::path& path, const std::string& key) {
    if (!objects::is_address(path) || !data::is_pattern(path)) return;
    if (key.starts_with("data.") && data::may_hold_ids(path)) return;
    config::fail_key(config, key,
                     "{}: {}: patterns of addresses name files of ready ids alone, such "
                     "as *.jsonl and *.parquet; name one object or the prefix of all "
                     "that is meant",
                     key, path.string());
  };
  look(config.model.config, "model.config");
  look(config.init.weights, "init.weights");
  for (const TrainSource& source : config.data.train) {
    for (const fs::path& entry : source.path.entries) look(entry, "data.train");
  }
  for (const ValidationSource& source : config.data.validation) {
    for (const fs::path& entry : source.path.entries) look(entry, "data.validation");
  }
  for (const TaskSource& task : config.validation.tasks) {
    look(task.path, "validation.tasks");
  }
}

}  // namespace longhaul::apps
