#pragma once

#include <string>

#include "longhaul/base/json.h"

namespace longhaul {

/// Appends one JSON object per line, so that each line is whole as soon as the call
/// returns. A line that a crash has torn is cut off when the file is opened again.
class JsonLines {
 public:
  explicit JsonLines(const fs::path& path);
  void append(const Json& object);
  /// Bytes of a torn last line that were cut off; 0 usually.
  uint64_t repaired() const { return repaired_; }

 private:
  File file_;
  uint64_t repaired_ = 0;
};

}  // namespace longhaul
