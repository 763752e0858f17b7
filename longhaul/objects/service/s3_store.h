#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/objects/object_store.h"

namespace longhaul::objects {

/// An S3-compatible store through Arrow's file system, in the process longhaul-objects.
/// Each function does what the one of ObjectStore with its name promises. Any thread may
/// call it.
class S3Store {
 public:
  /// Starts nothing: the first request starts Arrow's S3 part.
  S3Store();
  /// Ends Arrow's S3 part.
  ~S3Store();

  std::optional<ObjectInfo> look(const Address& address);
  std::vector<ObjectInfo> list(const Address& prefix, bool versions);
  void read(const ObjectInfo& object, uint64_t offset, std::span<std::byte> to);
  bool came_right(const ObjectInfo& object, const std::string& digest);
  std::string fetch(const ObjectInfo& object, const fs::path& to);
  std::string put(const fs::path& from, const Address& to);
  void put_text(const std::string& text, const Address& to);
  void remove(const Address& address);
  void remove_all(const Address& prefix);
  ObjectCounts counts() const;
  /// Lets no request be tried again from now on, since nobody waits for an answer.
  void give_up();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::objects
