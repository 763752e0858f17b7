#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/objects/address.h"

namespace longhaul::apps {

/// What a verb does with the place that its --out names.
struct OutputUse {
  /// The file at the top of a directory that may be replaced; empty: none may.
  std::string replaces = {};
  bool goes_on = false;  ///< with what an ended call left
  int processes = 1;     ///< that write together
  /// The ending of the name of a second directory, beside the first; empty: none.
  std::string beside = {};
};

/// Where a verb writes what its --out names. For a path that is the path itself. For an
/// address it is a directory of this machine, which upload() copies to the address. The
/// directory is the same for each call with this address, so that work that was ended
/// goes on there.
class OutputPlace {
 public:
  /// Throws InputError where objects lie below an address already that are not to be
  /// replaced and that no ended upload to this address has left. Also throws InputError
  /// for an address with several processes, which may run on several machines.
  OutputPlace(const std::string& named, const OutputUse& use);

  /// Returns the path to write to.
  const std::string& path() const { return path_; }

  /// Copies what was written to the address, and what lies beside it, the files that
  /// make it count at the end, and deletes the directories. What it replaces is deleted
  /// only once it was shown that objects can be made there. Throws InputError, and
  /// deletes nothing, where other objects have come to lie there. Standard error tells
  /// what was uploaded, and after a failure what is where. Does nothing where a path was
  /// named.
  void upload() const;

 private:
  struct Place {
    fs::path dir;
    objects::Address address;
  };
  /// Returns one of the objects `there`, which lie below an address, that must stay.
  std::optional<objects::Address> object_to_keep(
      const std::vector<objects::Address>& there, const objects::Address& address) const;

  std::string path_;
  std::vector<Place> places_;  ///< empty for a path
  std::string replaces_;       ///< OutputUse::replaces
  /// The file that is there while an upload goes on, or was ended. It has the keys of all
  /// objects that the upload makes or replaces, first the one that is made last.
  fs::path begun_;
  std::set<std::string> ours_;  ///< the keys in it
  std::string last_;            ///< the first of them
};

}  // namespace longhaul::apps
