#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/objects/copy_paths.h"
#include "longhaul/objects/object_store.h"

namespace longhaul::objects {

/// The requests to a store by which copies are made. Each does what the function of
/// ObjectStore of this name does; a test passes functions of its own.
struct CopyRequests {
  std::function<std::optional<ObjectInfo>(const Address&)> look;
  /// Returns objects with their versions.
  std::function<std::vector<ObjectInfo>(const Address&)> list;
  std::function<std::string(const ObjectInfo&, const fs::path&)> fetch;
  /// Called again and again while a copy waits for other processes. What it throws ends
  /// the wait. May be empty.
  std::function<void()> go_on = {};
  /// Returns the size of the disk and its free bytes. Empty: the file system is asked.
  std::function<fs::space_info()> space = {};
};

/// Copies of objects on a local disk, which all processes of a machine share and which
/// stay for the next start: `data.cache`. The name of a copy's directory follows from its
/// address and the versions of its objects, so an object that was replaced is fetched
/// anew. Each file is compared with the hash that was made when it was fetched, before it
/// is used for the first time in a process. Any thread may call it.
class LocalCopies {
 public:
  /// `dir` is made when it is needed. The copies are kept below `most_bytes` and within
  /// the disk: those that no process uses are deleted, the longest unused first. What
  /// other processes are fetching to `dir` counts as well. Without a limit (0) a
  /// twentieth of the disk is left free, 20 GB at most.
  ///
  /// `tell` gets a line when a fetch begins and, every ten seconds, how far it is; it may
  /// be empty. `paths` learns of the copies that are used; it may be null.
  LocalCopies(const std::shared_ptr<ObjectStore>& store, fs::path dir,
              uint64_t most_bytes = 0, std::function<void(const std::string&)> tell = {},
              std::shared_ptr<CopyPaths> paths = {});
  LocalCopies(CopyRequests requests, fs::path dir, uint64_t most_bytes = 0,
              std::function<void(const std::string&)> tell = {},
              std::shared_ptr<CopyPaths> paths = {});
  ~LocalCopies();

  /// Has each copy that is asked for from now on compared with its hashes, even if that
  /// was done since the machine booted: a file may have been damaged since then.
  void prove_anew();

  /// Returns the path of a copy of one object, or of all objects below a prefix with
  /// their names. The copy stays while this LocalCopies lives. Waits if another process
  /// is fetching the same copy. Objects below a prefix whose keys are no paths
  /// (is_path()) are passed over, and `tell` gets a line. Throws InputError if neither an
  /// object nor a prefix is there, if the objects' names cannot be those of files, and if
  /// the copy would not fit into `most_bytes` or on the disk.
  fs::path get(const Address& address);

  /// Returns the path of a copy of some objects below a prefix, whose versions are known.
  /// They have their names below that path. The copy stays while the result lives; then
  /// it may be deleted when other copies need its room. Throws InputError for an object
  /// that has another version, and names it. Without room for the copy, `waits` says to
  /// wait a minute for other processes to let go of their copies before it throws
  /// InputError. A run under way sets `waits`. Then a copy may also take the part of the
  /// disk that is otherwise left free.
  std::shared_ptr<const fs::path> hold(const Address& prefix,
                                       std::vector<ObjectInfo> objects, bool waits);
  /// Notes that copies of objects below a prefix will take `bytes`, while the result
  /// lives. Throws InputError if `bytes` and what is held exceed `most_bytes` together.
  std::shared_ptr<const void> reserve(const Address& prefix, uint64_t bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Returns the directory of copies if the user names none: longhaul/objects in
/// $XDG_CACHE_HOME or ~/.cache. Without a home it is in a directory of /tmp that is this
/// user's alone; throws InputError if others may write to that one.
fs::path default_cache();

}  // namespace longhaul::objects
