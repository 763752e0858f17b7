#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/objects/access.h"
#include "longhaul/objects/file_lock.h"

namespace longhaul::objects {

/// The requests that an upload needs, which ObjectStore explains. A test gives its own.
struct OutputRequests {
  std::function<std::optional<ObjectInfo>(const Address&)> look;
  std::function<std::vector<ObjectInfo>(const Address&, bool versions)> list;
  std::function<void(const fs::path&, const Address&)> put;
  std::function<void(const std::string&, const Address&)> put_text;
  std::function<std::optional<std::string>(const Address&)> read_text;
  std::function<void(const Address&)> remove;
};

/// What a verb does with the place that its --out names.
struct OutputUse {
  /// The file at the top of a directory that may be replaced; empty: none may.
  std::string replaces = {};
  bool goes_on = false;  ///< whether the verb goes on with what an ended call has left
  int processes = 1;     ///< number of processes that write together
  /// The ending of the name of a second directory, beside the first; empty: none.
  std::string beside = {};
  /// The names of the files that make a directory count, whatever verb has written it, so
  /// that these files come after all others, in this order.
  std::vector<std::string> last = {};
  /// Both get a line for people and may be empty: `tell` what was uploaded, `warn` what
  /// an upload that failed has left and where.
  std::function<void(const std::string&)> tell = {};
  std::function<void(const std::string&)> warn = {};
};

/// Where a verb writes what its --out names. For a path that is the path itself. For an
/// address it is a directory of this machine, which upload() copies to the address. The
/// directory is the same for each call with this address, so that work that was ended
/// goes on there. One process of a machine at a time has the place of an address, as long
/// as the object lives.
class OutputPlace {
 public:
  /// Throws InputError where objects lie below an address already that are not to be
  /// replaced and that no ended upload to this address has left, and where an object has
  /// its very name. Also throws InputError for an address with several processes, which
  /// may run on several machines, for a pattern, and for an address where another process
  /// of this machine writes, above it or below it.
  OutputPlace(const std::string& named, const Access& objects, const OutputUse& use);
  OutputPlace(const std::string& named, OutputRequests store, const OutputUse& use);

  /// Returns the path to write to.
  const std::string& path() const { return path_; }
  /// Returns whether an address was named.
  bool is_address() const { return !places_.empty(); }
  /// Returns a text for people in which addresses stand in place of the path and of the
  /// paths of copies.
  std::string as_named(std::string text) const;

  /// Copies the directory to the address, and the second directory (OutputUse::beside)
  /// beside it. The files of OutputUse::last come at the end. Then deletes the
  /// directories. Deletes the objects that it replaces only once it was shown that
  /// objects can be made there. Throws InputError, and deletes nothing, where other
  /// objects have come to lie there. Throws InputError as well where another upload to
  /// the address is found; then nothing there counts as whole. Does nothing where a path
  /// was named.
  void upload() const;

 private:
  struct Place {
    fs::path dir;
    Address address;
  };
  /// Takes the locks of `places_`, which are files in the directory `uploads`.
  void take_locks(const fs::path& uploads);
  /// Throws InputError that says that the address is not replaced because of its object
  /// `kept`.
  [[noreturn]] void refuse_to_replace(const Address& kept, const Address& address) const;
  /// Returns whether an upload that was ended has sent all files of the local
  /// directories.
  bool was_sent() const;
  /// Deletes the local directories and `begun_`, once the upload is whole.
  void forget_directories() const;
  /// Returns what lies below an address. Throws InputError where any of it must stay.
  std::vector<Address> objects_to_replace(const Address& address) const;
  /// Returns one of the objects `there`, which lie below an address, that must stay.
  std::optional<Address> object_to_keep(const std::vector<Address>& there,
                                        const Address& address) const;

  OutputRequests store_;
  std::shared_ptr<CopyPaths> copies_;  ///< null where no copies are made
  OutputUse use_;
  std::string path_;
  CopyPaths named_;            ///< the path, where it stands for an address
  std::vector<Place> places_;  ///< empty for a path
  std::vector<FileLock> locks_;
  /// The local file that is there while an upload goes on, or after it was ended. It has
  /// the keys of all objects that the upload makes or replaces, first the one that is
  /// made last.
  fs::path begun_;
  std::set<std::string> ours_;  ///< the keys in `begun_`
  std::string last_key_;        ///< the first key in `begun_`
};

}  // namespace longhaul::objects
