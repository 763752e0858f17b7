#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "longhaul/data/store/build/build_directory.h"

namespace longhaul::data {

/// Waits for the other processes of a build, by their files: each leaves records of its
/// parts and renews the lease of its lock.
class BuildPeers {
 public:
  /// Remembers the locks that stand there: who ended before this start does not count as
  /// one that ended in it.
  BuildPeers(const BuildDirectory& directory, const BuildOptions& options);

  /// Until `files` are all there. `owner[i]`: the process that makes file i.
  /// TemporaryError when one of them has ended or never came, or nothing changed for
  /// idle_seconds.
  void wait(const std::vector<fs::path>& files, const std::vector<int>& owner,
            const std::string& what);

 private:
  void check_owner(int process, double seconds, size_t done, size_t all) const;

  const BuildDirectory& directory_;
  const BuildOptions& options_;
  std::map<int, std::string> earlier_;  ///< tokens of locks that were there before
};

}  // namespace longhaul::data
