#include "longhaul/cluster/fleet/fleet.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"

namespace longhaul::cluster {
namespace {

void make_own(const fs::path& dir) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    throw to_error(fs::filesystem_error("mkdir", dir,
                                        std::error_code(errno, std::generic_category())));
  }
  struct stat info{};
  if (::lstat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    throw InputError("cluster", fmt::format("{}: is no directory of this user alone; "
                                            "remove it, it would hold what workers leave",
                                            dir.string()));
  }
}

}  // namespace

Json to_json(const HealthOptions& options) {
  Json directories = Json::array();
  for (const fs::path& dir : options.directories) directories.push_back(dir.string());
  return {{"quick", options.quick},
          {"directories", std::move(directories)},
          {"unhealthy_file", options.unhealthy_file.string()},
          {"command", options.command},
          {"command_seconds", options.command_seconds}};
}

HealthOptions health_options(const Json& json) {
  try {
    HealthOptions options;
    json.at("quick").get_to(options.quick);
    for (const Json& dir : json.at("directories")) {
      options.directories.emplace_back(dir.get<std::string>());
    }
    options.unhealthy_file = json.at("unhealthy_file").get<std::string>();
    json.at("command").get_to(options.command);
    json.at("command_seconds").get_to(options.command_seconds);
    return options;
  } catch (const Json::exception& error) {
    throw InputError("cluster", fmt::format("an order for a health check of another form "
                                            "than this program's: {}",
                                            words_of(error)));
  }
}

NodeDirectories node_directories(const fs::path& run_dir, const std::string& job) {
  const std::string whole = fs::absolute(run_dir).lexically_normal().string();
  const std::string name = fmt::format("longhaul-{}-{}", ::geteuid(),
                                       hash_hex(whole + '\n' + job).substr(0, 16));
  return {fs::path("/dev/shm") / name};
}

void make_directories(const NodeDirectories& directories) {
  make_own(directories.root);
  make_own(directories.records());
  make_own(directories.memory());
}

}  // namespace longhaul::cluster
