#pragma once

#include <string>
#include <vector>

namespace longhaul::cluster {

/// Removes from mpirun's error output the banners that mpirun writes after every exit
/// code other than 0. The banners name no cause and would bury the line that matters. All
/// other lines pass unchanged. Also finds out why a launcher could not start any rank.
class LauncherNoise {
 public:
  /// Takes the next line and returns the lines that a person should see now. Lines of a
  /// banner are held back until the banner ends.
  std::vector<std::string> pass(const std::string& line);
  /// Returns the lines of a banner that never ended.
  std::vector<std::string> rest();
  /// Returns why the launcher failed, as far as its lines have told, and for known causes
  /// what to do: one line. Else returns the text of the first banner that passed; empty
  /// if none did.
  std::string cause() const;

 private:
  void look_at(const std::string& line);

  std::vector<std::string> banner_;  ///< begins with the line of dashes
  std::string first_banner_;         ///< words of the first banner, cut if they are long
  std::string known_;                ///< a known cause
  std::string directory_;            ///< the directory that mpirun could not make
};

}  // namespace longhaul::cluster
