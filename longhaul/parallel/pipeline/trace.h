#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace longhaul::parallel {

/// What one rank did when, kept in memory and shown by chrome://tracing or Perfetto.
/// Times are the host's, where a lane is not the device's. One thread.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  /// The plan's actions and the waits for their messages; parts of the step; blocks of
  /// the model; operations; waits for other ranks; what the device did when.
  enum class Lane { Compute, Wait, Phase, Block, Operation, Ranks, Device };
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
  /// Microseconds since the origin.
  void record_us(std::string name, Lane lane, double begin, double duration);
  const std::vector<Event>& events() const { return events_; }
  void clear() { events_.clear(); }
  /// The events as JSON objects with commas between: pid is the rank, tid the lane; the
  /// lanes' names come first.
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
