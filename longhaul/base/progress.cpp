#include "longhaul/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "longhaul/base/text.h"

namespace longhaul {
namespace {

constexpr int kBarWidth = 24;

std::string amount(double value, const std::string& unit) {
  if (unit == "bytes") return human_bytes(value);
  return grouped(static_cast<int64_t>(value)) + " " + unit;
}

}  // namespace

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() { finish(); }

std::string Progress::text(int64_t done, int64_t total) const {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  const double rate = static_cast<double>(done) / std::max(spent.count(), 1e-9);
  std::string line = fmt::format("{} {}", what_, amount(static_cast<double>(done), unit_));
  if (total > 0) {
    const double part = static_cast<double>(done) / static_cast<double>(total);
    const double left = static_cast<double>(total - done) / std::max(rate, 1e-9);
    line += fmt::format(" of {} ({:.1f}%), {}/s, {} left", grouped(total), 100.0 * part,
                        amount(rate, unit_), human_duration(left));
    if (terminal_) {
      const int filled = static_cast<int>(part * kBarWidth);
      line = fmt::format("[{}{}] ", std::string(static_cast<size_t>(filled), '#'),
                         std::string(static_cast<size_t>(kBarWidth - filled), '.')) +
             line;
    }
  } else {
    line += fmt::format(", {}/s", amount(rate, unit_));
  }
  return line;
}

void Progress::update(int64_t done, int64_t total) {
  const auto now = std::chrono::steady_clock::now();
  const auto wait = terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10);
  if (now - last_ < wait) return;
  last_ = now;
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{}", text(done, total));
    std::fflush(stderr);
    drawn_ = true;
  } else {
    fmt::print(stderr, "{}\n", text(done, total));
  }
}

void Progress::finish() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace longhaul
