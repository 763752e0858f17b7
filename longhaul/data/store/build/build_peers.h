#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/data/store/build/build_directory.h"

namespace longhaul::data {

/// Waits for the other processes of a build by watching files. Each process writes
/// records of its finished parts and renews the lease of its lock.
class BuildPeers {
 public:
  /// Remembers the existing locks, so that a process that ended before this start is not
  /// taken for a process that ends during this start.
  BuildPeers(const BuildDirectory& directory, const BuildOptions& options);

  /// Waits until all `files` exist; process owner[i] makes file i. Throws TemporaryError
  /// when a process has ended or never started, or when nothing changed for idle_seconds.
  void wait(const std::vector<fs::path>& files, const std::vector<int>& owner,
            const std::string& what);

 private:
  void check_owner(int process, double seconds, size_t done, size_t all) const;

  const BuildDirectory& directory_;
  const BuildOptions& options_;
  /// By process: the token of a lock from before this start.
  std::map<int, std::string> earlier_;
};

}  // namespace longhaul::data
