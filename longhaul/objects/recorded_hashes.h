#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "longhaul/objects/address.h"

namespace longhaul::objects {

/// What this program's own records in an object store say of the objects beside them: the
/// hashes in store.json of a token store, manifest.json of a checkpoint and bert.json of
/// examples. Any thread may call it.
class RecordedHashes {
 public:
  /// What a record says of an object.
  struct Recorded {
    std::string hash;    ///< combine_hashes of its blocks (base/hash.h)
    std::string record;  ///< the name of the file that says it
    Address dir;         ///< where that file lies
  };

  /// Learns what a copy of an object says; nothing if the object is no record, or its
  /// copy cannot be read.
  void learn(const fs::path& copy, const Address& object);
  /// Returns what was learned last about an object.
  std::optional<Recorded> of(const Address& object) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Recorded> by_address_;
};

}  // namespace longhaul::objects
