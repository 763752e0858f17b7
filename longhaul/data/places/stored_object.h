#pragma once

#include <memory>

#include "longhaul/objects/object_store.h"

namespace longhaul::data {

/// An object that is an input.
struct StoredObject {
  std::shared_ptr<objects::ObjectStore> store;
  objects::ObjectInfo info;
};

}  // namespace longhaul::data
