#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::monitor {

/// Reads a file that another process appends lines to, each time only what is new. A last
/// line without its end is left for the next time. Nothing is written, nothing is locked.
/// Not thread-safe.
class LineTail {
 public:
  /// Bytes that stand behind every line and may be read by a parser that looks ahead.
  static constexpr size_t kPadding = 64;
  /// Longer lines are passed over and counted.
  static constexpr size_t kLongestLine = size_t{1} << 20;

  explicit LineTail(fs::path path) : path_(std::move(path)) {}

  /// What a read found.
  enum class Found {
    Nothing,  ///< no file, or no whole new line
    Lines,
    Restarted  ///< another file than before, or a shorter one: read from its start
  };
  using OnLine = std::function<void(std::string_view line)>;
  /// Called before the first line of a file that has replaced the one that was read
  /// before.
  using OnRestart = std::function<void()>;

  /// Hands over each whole line that is new, without its newline. Throws InputError if
  /// the file is there and cannot be read.
  Found read(const OnLine& line, const OnRestart& restart);

  /// Returns how many lines were longer than kLongestLine.
  int64_t too_long() const { return too_long_; }
  const fs::path& path() const { return path_; }

 private:
  void take_block(std::string_view fresh, const OnLine& line);
  bool is_another(uint64_t device, uint64_t inode, uint64_t size) const;

  fs::path path_;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint64_t offset_ = 0;  ///< behind the last whole line
  bool known_ = false;
  bool skipping_ = false;  ///< inside a line that is too long
  int64_t too_long_ = 0;
  std::vector<char> buffer_;
};

}  // namespace longhaul::monitor
