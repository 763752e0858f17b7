#pragma once

#include <string>
#include <vector>

namespace longhaul::cluster {

/// Removes from mpirun's error output the banners that mpirun writes after every exit
/// code other than 0. The banners name no cause and would bury the line that matters. All
/// other lines pass unchanged.
class LauncherNoise {
 public:
  /// Takes the next line and returns the lines that a person should see now. Lines of a
  /// banner are held back until the banner ends.
  std::vector<std::string> pass(const std::string& line);
  /// Returns the lines of a banner that never ended.
  std::vector<std::string> rest();

 private:
  std::vector<std::string> banner_;  ///< begins with the line of dashes
};

}  // namespace longhaul::cluster
