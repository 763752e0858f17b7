#pragma once

#include <functional>
#include <string>

#include "longhaul/base/append_file.h"
#include "longhaul/base/json.h"

namespace longhaul {

/// Appends one JSON object per line, so that each line is whole as soon as the call
/// returns, or left out if the disk has no room (see AppendFile). A line that a crash has
/// torn is cut off when the file is opened again.
class JsonLines {
 public:
  /// Opens the file. `tell` gets a line for people when lines begin to be lost, and when
  /// they no longer are.
  explicit JsonLines(const fs::path& path,
                     std::function<void(const std::string& line)> tell = {});
  /// Appends a line; returns false when it was not written.
  bool append(const Json& object);
  /// Returns how many lines were not written.
  int64_t lost() const { return file_.lost(); }
  /// Returns the bytes of a torn last line that were cut off; usually 0.
  uint64_t repaired() const { return repaired_; }

 private:
  AppendFile file_;
  uint64_t repaired_ = 0;
};

}  // namespace longhaul
