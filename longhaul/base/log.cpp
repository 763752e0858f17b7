#include "longhaul/base/log.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <string>

namespace longhaul {

struct Logger::Sink {
  std::mutex mutex;
  bool colours = ::isatty(STDOUT_FILENO) == 1;
  File file;

  void terminal(std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }
  void disk(std::string_view line) {
    if (!file.is_open()) return;
    file.write(std::string(line) + "\n");
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
  logger.sink_->file = File::open_append(file);
  return logger;
}

void Logger::info(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  sink_->terminal(line);
  sink_->disk(line);
}

void Logger::warning(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  const std::string plain = "warning: " + std::string(line);
  sink_->terminal(sink_->colours ? "\033[33m" + plain + "\033[0m" : plain);
  sink_->disk(plain);
}

void Logger::to_file_only(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  sink_->disk(line);
}

void Logger::to_terminal_only(std::string_view line) {
  if (silent()) return;
  const std::lock_guard lock(sink_->mutex);
  sink_->terminal(line);
}

}  // namespace longhaul
