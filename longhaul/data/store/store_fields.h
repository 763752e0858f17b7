#pragma once

#include "longhaul/base/json_fields.h"

namespace longhaul::data {

/// Fields of one JSON object of a store's own files.
inline JsonFields store_fields(const Json& json, const fs::path& file) {
  return {json, "data", file.string(), "build the store again or copy it again"};
}

}  // namespace longhaul::data
