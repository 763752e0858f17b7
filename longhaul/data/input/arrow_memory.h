#pragma once

#include <arrow/status.h>

#include <cerrno>

#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"

namespace longhaul::data {

/// Throws TemporaryError if the system has refused memory to Arrow. Does nothing if a
/// LimitedPool has refused memory, since its own limit was reached.
inline void require_memory(const arrow::Status& status, const fs::path& file) {
  // These words stand in the errors of Arrow's system pools only.
  if (!status.IsOutOfMemory() ||
      status.message().find("alloc of size") == std::string::npos)
    return;
  throw refused("memory", "memory to read or write " + file.string(), ENOMEM);
}

}  // namespace longhaul::data
