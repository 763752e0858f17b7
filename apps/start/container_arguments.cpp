#include "apps/start/container_arguments.h"

#include <utility>

#include "longhaul/base/process.h"
#include "longhaul/cluster/process/passed_environment.h"
#include "longhaul/config/load.h"
#include "longhaul/objects/client_files.h"

namespace longhaul::apps {
namespace {

/// What a container is to have besides this program and the working directory.
struct Needed {
  std::vector<fs::path> paths = {};
  bool stores = false;                      ///< objects are read or written
  std::vector<std::string> variables = {};  ///< patterns, of run.pass_environment

  void add(const RunConfig& config) {
    const auto of_run = cluster::paths_of_run(config);
    paths.insert(paths.end(), of_run.begin(), of_run.end());
    stores = stores || config.checkpoint.mirror || !addresses_of(config).empty();
    const auto& named = config.run.pass_environment;
    variables.insert(variables.end(), named.begin(), named.end());
  }
};

cluster::Container container_with(const cluster::SuperviseCommand& command,
                                  Needed needed) {
  std::vector<fs::path>& paths = needed.paths;
  const fs::path directory = fs::current_path();
  paths.push_back(directory);
  paths.insert(paths.end(), command.container_mounts.begin(),
               command.container_mounts.end());
  if (command.container_program.empty()) {
    paths.push_back(cluster::tree_of_program(this_program()));
    const auto libraries = cluster::environments_in_use();
    paths.insert(paths.end(), libraries.begin(), libraries.end());
  }
  cluster::Container container{command.container, cluster::mounts_of(paths), directory};
  if (needed.stores) {
    container.read_only = cluster::mounts_of(objects::client_files(), container.mounts);
  }
  container.variables = cluster::passed_variables(needed.variables);
  return container;
}

}  // namespace

void add_container_options(CLI::App& verb, cluster::SuperviseCommand& command) {
  verb.add_option("--container", command.container,
                  "image for enroot and pyxis, in which the ranks run; the paths that "
                  "the run names and this program are mounted into it");
  verb.add_option(
          "--container-mount", command.container_mounts,
          "one more path to mount into the container, at the same place; repeatable")
      ->allow_extra_args(false);
  verb.add_option(
          "--container-program", command.container_program,
          "absolute path of the image's own longhaul, which runs instead of this program")
      ->check([](const std::string& path) {
        return path.starts_with('/') ? "" : "'" + path + "' is not absolute";
      });
}

cluster::Container container_of_run(const cluster::SuperviseCommand& command,
                                    const RunConfig& config) {
  if (command.container.empty()) return {};
  Needed needed{.paths = {command.config}};
  needed.add(config);
  return container_with(command, std::move(needed));
}

cluster::Container container_of_verb(const cluster::SuperviseCommand& command,
                                     const std::vector<std::string>& words) {
  if (command.container.empty()) return {};
  Needed needed{.paths = cluster::paths_of_words(words)};
  for (const std::string& word : words) {
    needed.stores = needed.stores || word.find("s3://") != std::string::npos;
    if (fs::path(word).extension() != ".toml" || !fs::exists(word)) continue;
    needed.add(load_run_config(word).config);
  }
  return container_with(command, std::move(needed));
}

}  // namespace longhaul::apps
