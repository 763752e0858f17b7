#pragma once

#include <arrow/status.h>

#include <cerrno>

#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"

namespace longhaul::data {

/// Throws TemporaryError where the system has refused memory to Arrow, and nothing where
/// a pool of this program has, which has a limit of its own.
inline void require_memory(const arrow::Status& status, const fs::path& file) {
  // The words of Arrow's system pools.
  if (!status.IsOutOfMemory() ||
      status.message().find("alloc of size") == std::string::npos)
    return;
  throw refused("memory", "memory to read or write " + file.string(), ENOMEM);
}

}  // namespace longhaul::data
