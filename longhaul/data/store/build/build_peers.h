#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "longhaul/data/store/build/build_directory.h"

namespace longhaul::data {

/// Waits for the other processes of a build by watching files: each process leaves
/// records of its parts and renews the lease of its lock.
class BuildPeers {
 public:
  /// Remembers the locks that are there now: a process that had ended before this start
  /// does not count as one that ended during it.
  BuildPeers(const BuildDirectory& directory, const BuildOptions& options);

  /// Waits until all `files` are there; process owner[i] makes file i. TemporaryError
  /// when one of these processes has ended or never came, or when nothing changed for
  /// idle_seconds.
  void wait(const std::vector<fs::path>& files, const std::vector<int>& owner,
            const std::string& what);

 private:
  void check_owner(int process, double seconds, size_t done, size_t all) const;

  const BuildDirectory& directory_;
  const BuildOptions& options_;
  std::map<int, std::string> earlier_;  ///< by process, tokens of locks from before
};

}  // namespace longhaul::data
