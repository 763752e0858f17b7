#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// What a verb does with the place that its --out names.
struct OutputUse {
  bool replaces = false;  ///< what is there already
  bool goes_on = false;   ///< with what an ended call left
  int processes = 1;      ///< that write together
};

/// Where a verb writes what its --out names. For a path that is the path itself. For an
/// address it is a directory of this machine, which upload() copies to the address. The
/// directory is the same for each call with this address, so that work that was ended
/// goes on there.
class OutputPlace {
 public:
  /// Throws InputError where objects lie below the address already that are not to be
  /// replaced and that no ended call of this verb has left. Only a store, model or
  /// checkpoint is ever replaced, as on the disk. Also throws InputError for an
  /// address with several processes, which may run on several machines.
  OutputPlace(const std::string& named, const OutputUse& use);

  /// Returns the path to write to.
  const std::string& path() const { return path_; }

  /// Copies what was written to the address, the files that make it count at the end, and
  /// deletes the directory. Does the same for `beside`, a directory whose path is path()
  /// and an ending, where it is not empty. Throws InputError, and deletes nothing, where
  /// other objects have come to lie there. Standard error tells what was uploaded. Does
  /// nothing where a path was named.
  void upload(const fs::path& beside = {}) const;

 private:
  std::string named_;
  std::string path_;
  bool is_address_ = false;
};

}  // namespace longhaul::apps
