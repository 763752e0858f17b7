#include "longhaul/base/clock.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <sstream>

#include "longhaul/base/file.h"
#include "longhaul/base/process.h"

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

std::string describe_jump(double seconds) {
  return fmt::format(
      "the wall clock of {} has jumped {} by {:.1f} s; the run's times go on without the "
      "jump",
      host_name(), seconds > 0.0 ? "ahead" : "back", std::abs(seconds));
}

}  // namespace longhaul
