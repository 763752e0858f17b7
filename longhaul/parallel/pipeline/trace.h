#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace longhaul::parallel {

/// What one rank did when, kept in memory and shown by chrome://tracing or Perfetto.
/// Times are the host's: work that a device does later is not in them. One thread.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Lane { Compute = 0, Wait = 1 };
  struct Event {
    std::string name;
    Lane lane;
    double begin_us;  ///< since the origin
    double duration_us;
  };

  /// Ranks on one machine that share the origin share the time axis.
  explicit Trace(int rank, Clock::time_point origin = Clock::now())
      : rank_(rank), origin_(origin) {}

  /// `name` has no character that JSON would escape.
  void record(std::string name, Lane lane, Clock::time_point begin,
              Clock::time_point end);
  const std::vector<Event>& events() const { return events_; }
  void clear() { events_.clear(); }
  /// The events as JSON objects with commas between: pid is the rank, tid the lane.
  std::string json() const;

 private:
  int rank_;
  Clock::time_point origin_;
  std::vector<Event> events_;
};

/// Writes what Trace::json() gave on each rank as one file, atomically. Throws InputError
/// where that fails.
void write_trace(const std::filesystem::path& path,
                 const std::vector<std::string>& json_of_ranks);

}  // namespace longhaul::parallel
