#include "longhaul/base/clock.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <sstream>

#include "longhaul/base/file.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"

namespace longhaul {
namespace {

constexpr double kLeastJump = 1.0;
/// If the clocks of two machines differ by more seconds than this, one of them is wrong:
/// to start a process on another machine takes less time.
constexpr double kMostBetweenMachines = 300.0;

ClockName find_clock() {
  const double now = machine_seconds();
  ClockName own{first_line("/proc/sys/kernel/random/boot_id").substr(0, 8),
                system_time() - now};
  const char* handed = std::getenv(kClockVariable);
  if (handed == nullptr) return own;
  std::istringstream words(handed);
  std::string boot;
  double booted = 0.0;
  double then = 0.0;
  if (!(words >> boot >> booted >> then)) return own;
  if (boot == own.boot) {
    own.booted = booted;
  } else if (std::abs(own.booted + now - then) > kMostBetweenMachines) {
    own.booted = then - now;
  }
  return own;
}

/// Takes a number of `digits` digits off the front of a text; nothing if there is none.
std::optional<int> take_digits(std::string_view& text, size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int number = 0;
  for (const char digit : text.substr(0, digits)) {
    if (!is_digit(digit)) return std::nullopt;
    number = 10 * number + (digit - '0');
  }
  text.remove_prefix(digits);
  return number;
}

/// Takes one of `marks` off the front of a text, and returns whether it was there.
bool take_mark(std::string_view& text, std::string_view marks) {
  if (text.empty() || marks.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

/// Takes the days since 1970 of "2026-12-24" off the front of a text.
std::optional<int64_t> take_day(std::string_view& text) {
  const auto year = take_digits(text, 4);
  if (!year || !take_mark(text, "-")) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || !take_mark(text, "-")) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day) return std::nullopt;
  const std::chrono::year_month_day date(
      std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
      std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count();
}

/// Takes the seconds of "18:00" off the front of a text, which is less than a day.
std::optional<int64_t> take_minutes(std::string_view& text) {
  const auto hours = take_digits(text, 2);
  if (!hours || *hours > 23 || !take_mark(text, ":")) return std::nullopt;
  const auto minutes = take_digits(text, 2);
  if (!minutes || *minutes > 59) return std::nullopt;
  return 3600 * int64_t{*hours} + 60 * int64_t{*minutes};
}

const ClockName& clock_of_process() {
  static const ClockName clock = find_clock();
  return clock;
}

}  // namespace

double machine_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double system_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double unix_time() { return clock_of_process().booted + machine_seconds(); }

std::string clock_words() {
  const ClockName& clock = clock_of_process();
  return fmt::format("{} {:.6f} {:.6f}", clock.boot, clock.booted, unix_time());
}

ClockName own_clock() { return clock_of_process(); }

std::optional<double> ClockWatch::look() {
  const double ahead = system_time() - unix_time();
  const double jump = ahead - ahead_;
  if (std::abs(jump) < kLeastJump) return std::nullopt;
  ahead_ = ahead;
  return jump;
}

std::optional<int64_t> utc_seconds(std::string_view text) {
  const auto day = take_day(text);
  if (!day) return std::nullopt;
  const int64_t midnight = 86'400 * *day;
  if (text.empty()) return midnight;
  if (!take_mark(text, "T ")) return std::nullopt;
  const auto minutes = take_minutes(text);
  if (!minutes) return std::nullopt;
  int64_t seconds = midnight + *minutes;
  if (take_mark(text, ":")) {
    const auto more = take_digits(text, 2);
    if (!more || *more > 59) return std::nullopt;
    seconds += *more;
  }
  if (text.empty() || text == "Z") return seconds;
  const bool east = text.front() == '+';
  if (!take_mark(text, "+-")) return std::nullopt;
  const auto zone = take_minutes(text);
  if (!zone || !text.empty()) return std::nullopt;
  return east ? seconds - *zone : seconds + *zone;
}

std::string utc_text(int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string describe_jump(double seconds) {
  return fmt::format(
      "the wall clock of {} has jumped {} by {:.1f} s; the run's times go on without the "
      "jump",
      host_name(), seconds > 0.0 ? "ahead" : "back", std::abs(seconds));
}

}  // namespace longhaul
