#include "apps/start/container_arguments.h"

#include "longhaul/base/process.h"
#include "longhaul/config/load.h"

namespace longhaul::apps {
namespace {

cluster::Container container_with(const cluster::SuperviseCommand& command,
                                  std::vector<fs::path> paths) {
  const fs::path directory = fs::current_path();
  paths.push_back(directory);
  paths.insert(paths.end(), command.container_mounts.begin(),
               command.container_mounts.end());
  if (command.container_program.empty()) {
    paths.push_back(cluster::tree_of_program(this_program()));
    const auto libraries = cluster::environments_in_use();
    paths.insert(paths.end(), libraries.begin(), libraries.end());
  }
  return {command.container, cluster::mounts_of(paths), directory};
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
  std::vector<fs::path> paths = cluster::paths_of_run(config);
  paths.emplace_back(command.config);
  return container_with(command, std::move(paths));
}

cluster::Container container_of_verb(const cluster::SuperviseCommand& command,
                                     const std::vector<std::string>& words) {
  if (command.container.empty()) return {};
  std::vector<fs::path> paths = cluster::paths_of_words(words);
  for (const std::string& word : words) {
    if (fs::path(word).extension() != ".toml" || !fs::exists(word)) continue;
    const auto of_run = cluster::paths_of_run(load_run_config(word).config);
    paths.insert(paths.end(), of_run.begin(), of_run.end());
  }
  return container_with(command, std::move(paths));
}

}  // namespace longhaul::apps
