#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/objects/object_store.h"

namespace longhaul::data {

/// What the readers of inputs need of an object store. The functions are those of
/// objects::ObjectStore, and any thread may call them; list() gives no versions. A test
/// gives objects of its own.
class InputObjects {
 public:
  virtual ~InputObjects() = default;
  virtual std::optional<objects::ObjectInfo> look(const objects::Address& address) = 0;
  virtual std::vector<objects::ObjectInfo> list(const objects::Address& prefix) = 0;
  virtual void read(const objects::ObjectInfo& object, uint64_t offset,
                    std::span<std::byte> to) = 0;
  /// Returns `count` bytes from `offset` on, objects::kPlaceBytes at most.
  virtual std::shared_ptr<const std::byte[]> read_shared(
      const objects::ObjectInfo& object, uint64_t offset, uint64_t count) = 0;
  virtual void prove_unchanged(const objects::ObjectInfo& object) = 0;
  virtual bool came_right(const objects::ObjectInfo& object,
                          const std::string& digest) = 0;
  virtual std::optional<std::string> read_text(const objects::Address& address) = 0;
};

/// Returns the objects of a store.
std::shared_ptr<InputObjects> input_objects(std::shared_ptr<objects::ObjectStore> store);

/// An object that is an input.
struct StoredObject {
  std::shared_ptr<InputObjects> store;
  objects::ObjectInfo info;
};

}  // namespace longhaul::data
