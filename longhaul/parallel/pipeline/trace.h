#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace longhaul::parallel {

/// A timeline of one rank, kept in memory and shown by chrome://tracing or Perfetto.
/// Times are the host's, except in the device's lane. One thread uses a trace.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  /// Compute and Wait show the plan's actions and the waits for their messages, Phase the
  /// parts of the step, Block the blocks of the model and Operation the operations. Ranks
  /// shows waits for other ranks, and Device the device's work.
  enum class Lane { Compute, Wait, Phase, Block, Operation, Ranks, Device };
  struct Event {
    std::string name;
    Lane lane;
    double begin_us;  ///< since the origin
    double duration_us;
  };

  /// Begins a timeline. Timelines with one `origin` have one time axis, for ranks of one
  /// machine.
  explicit Trace(int rank, Clock::time_point origin = Clock::now())
      : rank_(rank), origin_(origin) {}

  /// Adds an event. `name` must have no character that JSON escapes.
  void record(std::string name, Lane lane, Clock::time_point begin,
              Clock::time_point end);
  /// Adds an event. `begin` and `duration` are in microseconds, `begin` microseconds
  /// since the origin.
  void record_us(std::string name, Lane lane, double begin, double duration);
  const std::vector<Event>& events() const { return events_; }
  void clear() { events_.clear(); }
  /// Returns the events as JSON objects with commas between them: pid is the rank, tid
  /// the lane. The lanes' names come first.
  std::string json() const;

 private:
  int rank_;
  Clock::time_point origin_;
  std::vector<Event> events_;
};

/// Writes the texts of Trace::json() of all ranks as one file, atomically. Throws
/// InputError if that fails.
void write_trace(const std::filesystem::path& path,
                 const std::vector<std::string>& json_of_ranks);

}  // namespace longhaul::parallel
