#pragma once

#include <fmt/core.h>

#include <memory>
#include <string_view>
#include <utility>

#include "longhaul/base/file.h"

namespace longhaul::system {

/// Writes lines for people to standard output and, if a file was given, to its end.
/// Warnings are marked, in yellow on a terminal. It is passed by reference, never global.
/// Any thread may write; a line is never torn, and control characters in it are replaced
/// by escapes such as \x1b.
class Logger {
 public:
  /// Makes a logger that writes nothing, for ranks that log nothing.
  Logger();
  /// Returns a logger that writes to standard output only.
  static Logger to_terminal();
  /// Returns a logger that writes to standard output and to the end of `file`.
  static Logger to_file(const fs::path& file);
  Logger(Logger&&) noexcept;
  Logger& operator=(Logger&&) noexcept;
  ~Logger();

  bool silent() const { return sink_ == nullptr; }
  /// Writes a line. With more arguments the line is formatted as by fmt::format.
  void info(std::string_view line);
  template <class First, class... Rest>
  void info(fmt::format_string<First, Rest...> line, First&& first, Rest&&... rest) {
    info(fmt::format(line, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  void warning(std::string_view line);
  template <class First, class... Rest>
  void warning(fmt::format_string<First, Rest...> line, First&& first, Rest&&... rest) {
    warning(fmt::format(line, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  /// Writes to the file alone, or to standard output alone.
  void to_file_only(std::string_view line);
  void to_terminal_only(std::string_view line);
  /// Shows how far long work has come: on a terminal one line below the others, redrawn
  /// in place, elsewhere a line of standard output every 10 s. The file never has it.
  void status(std::string_view line);

 private:
  struct Sink;
  std::unique_ptr<Sink> sink_;
};

}  // namespace longhaul::system
