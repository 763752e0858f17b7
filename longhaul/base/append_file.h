#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "longhaul/base/file.h"

namespace longhaul {

/// A file to which pieces (lines, records) are appended, each whole or not at all. A
/// piece that cannot be written, because the disk is full for example, is counted and
/// left out, and the program goes on; the next piece is tried again. A file that somebody
/// has renamed or removed is begun anew under its name. Other processes may append to the
/// same file. One thread may use it.
class AppendFile {
 public:
  AppendFile() = default;
  /// Opens the file; creates it if absent. Throws if it cannot be opened.
  explicit AppendFile(const fs::path& path);

  bool is_open() const { return file_.is_open(); }
  const fs::path& path() const { return file_.path(); }

  /// Sets a function that is called with a line for people when pieces begin to be lost,
  /// when they are written again, and when the file was begun anew. It must not append to
  /// this file.
  void on_trouble(std::function<void(const std::string& line)> tell);
  /// Sets the first text of every file that is begun in place of a renamed or removed
  /// one.
  void begin_with(std::string head) { head_ = std::move(head); }

  /// Appends a piece; returns false when it was not written.
  bool append(std::string_view piece);
  /// Returns how many pieces are missing since the file was opened.
  int64_t lost() const { return lost_; }

 private:
  bool follow_name();
  bool write_whole(std::string_view piece);
  void begin_trouble(const std::string& why);
  void end_trouble();

  File file_;
  std::string head_;
  std::function<void(const std::string&)> tell_;
  int64_t lost_ = 0;
  int64_t lost_in_a_row_ = 0;
};

}  // namespace longhaul
