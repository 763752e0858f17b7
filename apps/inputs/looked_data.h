#pragma once

#include <vector>

#include "longhaul/config/run_config.h"
#include "longhaul/objects/object_store.h"

namespace longhaul::apps {

/// What a store says about the objects that a run reads.
struct LookedData {
  std::vector<fs::path> addresses;  ///< those that were looked at
  double copied = 0.0;              ///< bytes that each machine copies to data.cache
  double packed = 0.0;  ///< bytes of ready ids, which are packed straight from the store
};

/// Asks the store for the sizes of what a run reads by address; nothing is copied.
/// Patterns are passed over. Throws InputError for an address with no object, and what
/// ObjectStore throws.
LookedData look_at_data(const RunConfig& config, objects::ObjectStore& store);

}  // namespace longhaul::apps
