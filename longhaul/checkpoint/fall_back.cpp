#include "longhaul/checkpoint/fall_back.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/format/finite.h"
#include "longhaul/run/files.h"

namespace longhaul::checkpoint {
namespace {

/// Valid ones, the newest first; none where `named` is a checkpoint itself or a model.
std::vector<fs::path> checkpoints_of(const fs::path& named) {
  std::error_code error;
  if (!fs::is_directory(named, error) || fs::exists(named / kManifestFile, error)) {
    return {};
  }
  std::vector<fs::path> paths = valid_newest_first(checkpoints_dir_of(named));
  return paths.empty() ? valid_newest_first(named) : paths;
}

/// Whether an error tells of damage in this checkpoint. Values that were saved as NaN are
/// no damage: figures of other weights are no substitute.
bool is_of(const Error& error, const fs::path& checkpoint) {
  return error.kind() == ErrorKind::Input && error.area() != kValuesArea &&
         std::string_view(error.what()).find(checkpoint.string()) !=
             std::string_view::npos;
}

}  // namespace

void with_fall_back(const fs::path& named,
                    const std::function<void(const fs::path&)>& use,
                    const std::function<void(const std::string&)>& tell) {
  const std::vector<fs::path> paths = checkpoints_of(named);
  fs::path path = named;
  for (size_t next = 1;; ++next) {
    try {
      use(path);
      return;
    } catch (const Error& error) {
      if (next >= paths.size() || !is_of(error, paths[next - 1])) throw;
      tell(fmt::format("{} is damaged: {}; taking {}, the one before it",
                       paths[next - 1].string(), error.what(), paths[next].string()));
      path = paths[next];
    }
  }
}

}  // namespace longhaul::checkpoint
