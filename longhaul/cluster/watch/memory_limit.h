#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::cluster {

/// How many processes the kernel has killed in the cgroup of a process for want of
/// memory, and the limit of that cgroup. Both forms of cgroups are read (v1 and v2).
class MemoryLimit {
 public:
  /// Finds the cgroup of a living process. `root` is where /proc and /sys are, for tests.
  explicit MemoryLimit(int64_t pid, const fs::path& root = "/");

  /// Returns the kills since this object was made; 0 if nothing can be read.
  int64_t kills() const;
  /// Returns the lowest limit of the cgroup and those above it, in bytes; nothing if
  /// there is none.
  std::optional<int64_t> bytes() const;

 private:
  int64_t count() const;

  std::vector<fs::path> groups_;
  fs::path counts_;  ///< the file that counts the kills; empty: none was found
  int64_t before_ = 0;
};

}  // namespace longhaul::cluster
