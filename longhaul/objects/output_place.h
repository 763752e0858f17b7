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

/// The requests to a store that an upload needs. Each does what the function of
/// ObjectStore of this name does; a test passes functions of its own.
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
  /// A directory with a file of this name at its top may be replaced; empty: no directory
  /// may be replaced.
  std::string replaces = {};
  bool goes_on = false;  ///< whether the verb goes on with what an ended call has left
  int processes = 1;     ///< number of processes that write together
  /// The ending of the name of a second directory, beside the first; empty: none.
  std::string beside = {};
  /// The names of the files without which no reader takes a directory for complete,
  /// whatever verb has written it. They are uploaded after all others, in this order.
  std::vector<std::string> last = {};
  /// Both get a line for people and may be empty: `tell` what was uploaded, `warn` what
  /// an upload that failed has left and where.
  std::function<void(const std::string&)> tell = {};
  std::function<void(const std::string&)> warn = {};
};

/// The place to which a verb writes its output. If --out names a path, it is that path.
/// If --out names an address, it is a directory of this machine, which upload() copies to
/// the address. Each call with the same address gets the same directory, so that it can
/// go on with the work of a call that was ended. While an OutputPlace lives, no other
/// process of the machine can make one for its address.
class OutputPlace {
 public:
  /// Throws InputError if objects lie below the address that are not to be replaced and
  /// that are not of an ended upload to it, and if an object has the address's very name.
  /// Also throws InputError for an address with several processes, which may run on
  /// several machines, and for a pattern. Throws it as well if another process of this
  /// machine writes to the same address, or above or below it.
  OutputPlace(const std::string& named, const Access& objects, const OutputUse& use);
  OutputPlace(const std::string& named, OutputRequests store, const OutputUse& use);

  /// Returns the path to write to.
  const std::string& path() const { return path_; }
  /// Returns whether --out named an address.
  bool is_address() const { return !places_.empty(); }
  /// Returns a text for people in which the paths of the output and of copies are
  /// replaced by their addresses.
  std::string as_named(std::string text) const;

  /// Copies the directory to the address, and the second directory (OutputUse::beside)
  /// beside it. The files of OutputUse::last come at the end. Then deletes the
  /// directories. Deletes the objects that it replaces only once it was shown that
  /// objects can be made there. Throws InputError, and deletes nothing, if objects that
  /// are not to be replaced have been made there since. Throws InputError as well if
  /// another upload to the address is found; then no reader takes what is there for
  /// complete. Does nothing if a path was named.
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
  /// Deletes the local directories and the file `begun_`. Must be called once the upload
  /// is complete.
  void forget_directories() const;
  /// Returns the objects below an address. Throws InputError if any of them must stay.
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
  /// The local file that exists while an upload is under way, or after it was ended. It
  /// lists the keys of all objects that the upload makes or replaces, first the one that
  /// is made last.
  fs::path begun_;
  std::set<std::string> ours_;  ///< the keys in `begun_`
  std::string last_key_;        ///< the first key in `begun_`
};

}  // namespace longhaul::objects
