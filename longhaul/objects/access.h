#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "longhaul/objects/copy_paths.h"
#include "longhaul/objects/object_store.h"
#include "longhaul/objects/pieces.h"

namespace longhaul::objects {

/// How the copies are kept that Access::readable() makes.
struct CopyPlace {
  fs::path dir;                                  ///< empty: default_cache()
  uint64_t most_bytes = 0;                       ///< 0: no limit
  std::function<void(const std::string&)> tell;  ///< gets lines of progress; may be empty
  bool prove_anew = false;                       ///< LocalCopies::prove_anew()
};

/// What a program needs to read and write by address: a store, and copies on the local
/// disk. All parts of the program share one Access, and with it the limit of requests in
/// flight. Only a mirror of checkpoints has a store of its own. A copy of an Access
/// shares the state of the first one. Any thread may call it.
class Access {
 public:
  Access();

  /// Returns the store.
  const std::shared_ptr<ObjectStore>& store() const;
  /// Returns the paths of the copies that were used.
  const std::shared_ptr<CopyPaths>& paths() const;
  /// Returns a text for people in which each path of a copy is replaced by its address.
  std::string with_addresses(std::string text) const;

  /// Sets how the copies are kept. After the first readable() of an address only `tell`
  /// and `prove_anew` of `place` are taken.
  void keep_copies(CopyPlace place) const;
  /// Returns the local path for what a user named. A path is returned as it is. For an
  /// address the result is a local copy of the object, or of all objects below the
  /// prefix. The copy is fetched if it is not there, and stays while this Access lives.
  /// Throws what LocalCopies::get() throws, and InputError for a pattern of addresses.
  fs::path readable(const fs::path& path) const;

  /// Has an address read in pieces: readable() returns Pieces::dir() for it from now on.
  /// The other arguments are those of Pieces. Throws what Pieces throws.
  void read_in_pieces(const fs::path& address, const std::vector<ObjectInfo>& objects,
                      const std::function<bool(const std::string& name)>& comes_later,
                      std::string outline = {}) const;
  /// Returns the Pieces whose dir() is `dir`; null if there are none.
  std::shared_ptr<const Pieces> pieces_at(const fs::path& dir) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace longhaul::objects
