#pragma once

#include <memory>
#include <string_view>

#include "longhaul/base/file.h"

namespace longhaul {

/// Lines for people: to standard output and, where given, to a file that is appended to.
/// Warnings are marked (in yellow on a terminal). Passed by reference, never global; any
/// thread may write, a line is never torn, and control characters in it are written out.
class Logger {
 public:
  /// Writes nothing: for ranks that do not speak.
  Logger();
  /// To standard output only.
  static Logger to_terminal();
  /// To standard output and to the end of `file`.
  static Logger to_file(const fs::path& file);
  Logger(Logger&&) noexcept;
  Logger& operator=(Logger&&) noexcept;
  ~Logger();

  bool silent() const { return sink_ == nullptr; }
  void info(std::string_view line);
  void warning(std::string_view line);
  /// To the file alone, or to standard output alone.
  void to_file_only(std::string_view line);
  void to_terminal_only(std::string_view line);
  /// How far long work has come: on a terminal one line below the others, redrawn in
  /// place; elsewhere a line of standard output every 10 s. Never in the file.
  void status(std::string_view line);

 private:
  struct Sink;
  std::unique_ptr<Sink> sink_;
};

}  // namespace longhaul
