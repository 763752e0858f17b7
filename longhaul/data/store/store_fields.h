#pragma once

#include "longhaul/base/json/json_fields.h"

namespace longhaul::data {

/// Returns the fields of a JSON object in one of a store's own files. `file` is named in
/// messages.
inline JsonFields store_fields(const Json& json, const fs::path& file) {
  return {json, "data", file.string(), "build the store again or copy it again"};
}

}  // namespace longhaul::data
