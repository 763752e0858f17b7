#include "longhaul/system/log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>

#include "longhaul/base/append_file.h"
#include "longhaul/system/terminal.h"

namespace longhaul::system {

using Clock = std::chrono::steady_clock;

struct Logger::Sink {
  std::mutex mutex;
  bool on_terminal = is_terminal(STDOUT_FILENO);
  AppendFile file;
  int64_t told_lost = 0;  ///< lost lines of which the file itself tells
  bool status_drawn = false;
  Clock::time_point status_time = Clock::now();

  ~Sink() { clear_status(); }

  void clear_status() {
    if (!status_drawn) return;
    std::fputs("\r\033[K", stdout);
    std::fflush(stdout);
    status_drawn = false;
  }
  void draw_status(const std::string& line) {
    clear_status();
    // Automatic line wrap is off, because a wrapped line could not be drawn over.
    std::fprintf(stdout, "\033[?7l%s\033[?7h", line.c_str());
    std::fflush(stdout);
    status_drawn = true;
  }
  void terminal(std::string_view line) {
    clear_status();
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }
  void disk(std::string_view line) {
    if (!file.is_open()) return;
    std::string piece;
    const int64_t missing = file.lost() - told_lost;
    if (missing > 0) {
      piece = "warning: " + std::to_string(missing) +
              " of this log's lines could not be " + "written here\n";
    }
    if (file.append(piece.append(line) + "\n")) told_lost += missing;
  }
};

Logger::Logger() = default;
Logger::Logger(Logger&&) noexcept = default;
Logger& Logger::operator=(Logger&&) noexcept = default;
Logger::~Logger() = default;

Logger Logger::to_terminal() {
  Logger logger;
  logger.sink_ = std::make_unique<Sink>();
  return logger;
}

Logger Logger::to_file(const fs::path& file) {
  Logger logger = to_terminal();
  logger.sink_->file = AppendFile(file);
  // The sink stays where it is when the logger is moved.
  logger.sink_->file.on_trouble([sink = logger.sink_.get()](const std::string& line) {
    sink->terminal("warning: " + printable(line));
  });
  return logger;
}

void Logger::info(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  const std::string plain = printable(line);
  sink_->terminal(plain);
  sink_->disk(plain);
}

void Logger::warning(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  const std::string plain = "warning: " + printable(line);
  sink_->terminal(warning_text(plain, STDOUT_FILENO));
  sink_->disk(plain);
}

void Logger::to_file_only(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  sink_->disk(printable(line));
}

void Logger::to_terminal_only(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  sink_->terminal(printable(line));
}

void Logger::status(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  const Clock::time_point now = Clock::now();
  if (sink_->on_terminal) {
    // A line of the log erases the status line. Then it is drawn again at once, else at
    // most every 200 ms.
    const bool soon = now - sink_->status_time < std::chrono::milliseconds(200);
    if (sink_->status_drawn && soon) return;
    sink_->draw_status(printable(line));
  } else {
    if (now - sink_->status_time < std::chrono::seconds(10)) return;
    sink_->terminal(printable(line));
  }
  sink_->status_time = now;
}

}  // namespace longhaul::system
