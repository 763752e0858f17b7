#include "longhaul/system/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "longhaul/base/text.h"
#include "longhaul/system/terminal.h"

namespace longhaul::system {
namespace {

constexpr size_t kBarWidth = 24;

std::string count(double value, const std::string& unit) {
  return unit == "bytes" ? human_bytes(value) : grouped(static_cast<int64_t>(value));
}

std::string amount(double value, const std::string& unit) {
  return unit == "bytes" ? human_bytes(value) : count(value, unit) + " " + unit;
}

/// Returns a speed, with decimals for slow work in few pieces: "0.4 batches/s", not "0".
std::string speed(double rate, const std::string& unit) {
  if (unit != "bytes" && rate < 10.0) return fmt::format("{:.2f} {}/s", rate, unit);
  return amount(rate, unit) + "/s";
}

double share(int64_t done, int64_t total) {
  return std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
}

std::string bar(int64_t done, int64_t total) {
  const auto filled = static_cast<size_t>(share(done, total) * kBarWidth);
  return "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
}

/// Returns the line cut to the terminal's width: a wrapped line cannot be drawn over.
std::string fitting(std::string line) {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
    line.resize(std::min<size_t>(line.size(), size.ws_col - 1U));
  }
  return line;
}

}  // namespace

std::string progress_line(const std::string& what, const std::string& unit, int64_t done,
                          int64_t total, double seconds, int64_t before) {
  const auto lately = static_cast<double>(std::max<int64_t>(0, done - before));
  const double rate = lately / std::max(seconds, 1e-9);
  if (total <= 0) {
    return fmt::format("{} {}, {}", what, amount(static_cast<double>(done), unit),
                       speed(rate, unit));
  }
  std::string line = fmt::format("{} {} of {} ({:.1f}%), {}", what,
                                 count(static_cast<double>(done), unit),
                                 amount(static_cast<double>(total), unit),
                                 100.0 * share(done, total), speed(rate, unit));
  if (done > before) {
    const double left = static_cast<double>(total - done) / rate;
    line += fmt::format(", {} left", human_duration(left));
  }
  return line;
}

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      terminal_(is_terminal(STDERR_FILENO)) {}

Progress::~Progress() { finish(); }

void Progress::update(int64_t done, int64_t total) {
  const double now = watch_.seconds();
  if (now - shown_ < (terminal_ ? 0.2 : 10.0)) return;
  shown_ = now;
  const std::string line = progress_line(what_, unit_, done, total, now);
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{}", fitting(total > 0 ? bar(done, total) + line : line));
    std::fflush(stderr);
    drawn_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
}

void StagedProgress::update(const std::string& title, const std::string& unit,
                            int64_t done, int64_t total) {
  if (!progress_ || title_ != title) {
    finish();
    progress_.emplace(title_ = title, unit);
  }
  progress_->update(done, total);
}

void Progress::finish() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace longhaul::system
