#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul {

// This program has three clocks. unix_time() (process.h) gives times that are written,
// and durations within a process. It begins at the wall clock's time and goes on with the
// machine's clock. So it does not jump when somebody sets the wall clock. A process that
// a supervisor starts takes over the supervisor's clock. Any thread may call any of these
// functions.

/// Returns the seconds since this machine was started. All its processes read the same
/// number, and nobody can set this clock.
double machine_seconds();
/// Returns the seconds since 1970 by the wall clock, which somebody may set.
double system_time();

/// The variable by which a process hands its clock to those that it starts.
inline constexpr const char* kClockVariable = "LONGHAUL_CLOCK";
/// Returns the value of kClockVariable: the name of this start of the machine,
/// unix_time() when the machine was started, and unix_time() now.
std::string clock_words();

/// Names the clock of an event's times: `boot` names this start of the machine, and
/// `booted` says when that was by the writer's clock. Two writers with the same boot and
/// another `booted` were started before and after a jump of the wall clock.
struct ClockName {
  std::string boot;
  double booted = 0.0;
};
ClockName own_clock();

/// Finds jumps of the wall clock. One thread may use it.
class ClockWatch {
 public:
  /// Returns by how many seconds the clock has jumped, ahead if positive, since the last
  /// call or since this process's clock began; nothing if that is less than a second.
  std::optional<double> look();

 private:
  double ahead_ = 0.0;
};

/// Reads a date or a date-time of ISO 8601 as seconds since 1970: "2026-12-24",
/// "2026-12-24T18:00", "2026-12-24 18:00:30Z", "2026-12-24T18:00:30+01:00". A date alone
/// is its first second, and a time without a zone is of UTC. Returns nothing for any
/// other text.
std::optional<int64_t> utc_seconds(std::string_view text);
/// Returns seconds since 1970 as "2026-11-21T08:15:30Z".
std::string utc_text(int64_t seconds);

/// Returns "the wall clock has jumped ahead by 14400.0 s; ...".
std::string describe_jump(double seconds);

}  // namespace longhaul
