#pragma once

#include <arrow/status.h>

#include <cerrno>

#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"

namespace longhaul::data {

/// TemporaryError where the system has refused Arrow memory; not where a pool of ours,
/// which has a limit of its own, has refused it.
inline void require_memory(const arrow::Status& status, const fs::path& file) {
  // As Arrow's system pools say it.
  if (!status.IsOutOfMemory() ||
      status.message().find("alloc of size") == std::string::npos)
    return;
  throw refused("memory", "memory to read or write " + file.string(), ENOMEM);
}

}  // namespace longhaul::data
