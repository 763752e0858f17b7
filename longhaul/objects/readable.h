#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "longhaul/objects/object_store.h"
#include "longhaul/objects/pieces.h"

namespace longhaul::objects {

/// Returns the object store of this process, which is made at the first call. All parts
/// of the program that read or write objects share it, and with it the limit of requests
/// in flight, but a mirror of checkpoints, which has one of its own.
std::shared_ptr<ObjectStore> shared_store();

/// How a process keeps the copies that readable() makes.
struct CopyPlace {
  fs::path dir;                                  ///< empty: default_cache()
  uint64_t most_bytes = 0;                       ///< 0: no limit
  std::function<void(const std::string&)> tell;  ///< gets lines of progress; may be empty
  bool prove_anew = false;                       ///< LocalCopies::prove_anew()
};

/// Says how the copies are kept. After the first readable() of an address only `tell` and
/// `prove_anew` are taken.
void keep_copies(CopyPlace place);

/// Returns a path of this machine for what a user named. For a path that is the path
/// itself. For an address it is a local copy of the object, or of all objects below the
/// prefix, which is fetched where it is not there. The copy stays until this process
/// ends. Throws what LocalCopies::get() throws, and InputError for a pattern of
/// addresses. Any thread may call it.
fs::path readable(const fs::path& path);

/// Returns the address that readable() understands a text as, which is parse_address()'s.
Address readable_address(const fs::path& path);

/// Has an address read in pieces: readable() returns Pieces::dir() for it from now on.
/// The other arguments are those of Pieces. Throws what Pieces throws.
void read_in_pieces(const fs::path& address, const std::vector<ObjectInfo>& objects,
                    const std::function<bool(const std::string& name)>& comes_later,
                    std::string outline = {});
/// Returns the pieces whose directory `dir` is; null where it is none of theirs.
std::shared_ptr<const Pieces> pieces_at(const fs::path& dir);

}  // namespace longhaul::objects
