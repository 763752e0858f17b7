#pragma once

#include <string>
#include <vector>

namespace longhaul::cluster {

/// Takes out of mpirun's error output what it says after every end that is not 0: banners
/// without a cause, under which the line that matters would be buried. What it says of
/// anything else passes.
class LauncherNoise {
 public:
  /// The lines that a person should see now, given the next one; a banner's are held back
  /// until it ends.
  std::vector<std::string> pass(const std::string& line);
  /// Of a banner that never ended.
  std::vector<std::string> rest();

 private:
  std::vector<std::string> banner_;  ///< with its first line of dashes
};

}  // namespace longhaul::cluster
