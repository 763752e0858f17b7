#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/objects/object_store.h"

namespace longhaul::objects {

/// The directory in a copy's directory in which the files of objects are.
inline constexpr const char* kCopyContent = "content";

/// What one copy on the local disk consists of.
struct CopyContent {
  std::string id;
  std::string name;
  bool one_object = false;
  std::vector<ObjectInfo> objects;
  std::vector<Address> passed_over;  ///< objects whose keys are no paths
  uint64_t bytes = 0;

  /// Returns the path of an object's file, relative to the copy's directory. `root` is
  /// the address of the copy.
  fs::path file(const ObjectInfo& object, const Address& root) const;
};

/// Returns what a copy of an object, or of objects below a prefix, consists of. Its id
/// follows from their keys and versions. Throws InputError if the objects' names cannot
/// be those of files.
CopyContent content_of(const Address& address, std::vector<ObjectInfo> objects,
                       bool one_object);

}  // namespace longhaul::objects
