#include "apps/objects/mirrored_checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/mirror/mirror_reader.h"
#include "longhaul/objects/local_copy.h"
#include "longhaul/run/files.h"

namespace longhaul::apps {
namespace {

/// What an address means where it is of a mirror.
struct Meant {
  objects::Address mirror;
  std::optional<int64_t> step;  ///< nothing: the newest
};

Meant meant_by(const objects::Address& address) {
  const size_t slash = address.key.rfind('/');
  if (slash == std::string::npos) return {address, std::nullopt};
  const auto step = run::step_of(address.key.substr(slash + 1));
  if (!step) return {address, std::nullopt};
  return {{address.bucket, address.key.substr(0, slash)}, step};
}

std::optional<checkpoint::MirrorStep> find_step(checkpoint::MirrorStore& store,
                                                std::optional<int64_t> wanted) {
  const checkpoint::MirrorListing listing(store, wanted);
  std::vector<std::string> skipped;
  for (const int64_t step : listing.steps()) {
    if (listing.manifests(step).empty()) continue;
    if (auto found = listing.read(step, &skipped)) return found;
  }
  if (!wanted || skipped.empty()) return std::nullopt;
  throw InputError("mirror", fmt::format("{}: step {} is not whole: {}", store.place(),
                                         *wanted, fmt::join(skipped, "; ")));
}

/// Returns whether the local copy is of this very checkpoint.
bool is_copy_of(const fs::path& dir, const checkpoint::MirrorStep& step) {
  const fs::path manifest = dir / run::kManifestFile;
  return fs::exists(manifest) && read_text(manifest) == step.manifest_text;
}

}  // namespace

std::optional<fs::path> mirrored_checkpoint(
    const objects::Address& address,
    const std::function<void(const std::string&)>& tell) {
  const Meant meant = meant_by(address);
  const auto store = checkpoint::open_mirror(meant.mirror);
  const auto step = find_step(*store, meant.step);
  if (!step) return std::nullopt;
  const fs::path copies = objects::default_cache().parent_path() / run::kCheckpointsDir /
                          hash_hex(meant.mirror.text()).substr(0, 16);
  make_directories_durable(copies);
  // Ranks of one machine ask for the same. The lock goes with the file.
  const File lock = File::open_append(copies / ".lock");
  while (::flock(lock.fd(), LOCK_EX) != 0 && errno == EINTR) {
  }
  const fs::path copy = copies / run::step_directory_name(step->step);
  if (!is_copy_of(copy, *step)) {
    tell(fmt::format("fetching the checkpoint of step {} from the mirror {} to {}",
                     step->step, meant.mirror.text(), copy.string()));
    fs::remove_all(copy);
    checkpoint::fetch_checkpoint(*store, *step, copies, tell);
  }
  return copy;
}

}  // namespace longhaul::apps
