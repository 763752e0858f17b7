#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul {

/// How a supervised run stands: status.json in its directory, written every second. Both
/// who writes and who reads it have it from here.
struct RunStatus {
  static constexpr const char* kStarting = "starting";
  static constexpr const char* kTraining = "training";
  static constexpr const char* kSaving = "saving";
  static constexpr const char* kRestarting = "restarting";
  static constexpr const char* kDraining = "draining";
  static constexpr const char* kDone = "done";
  static constexpr const char* kStopped = "stopped";
  static constexpr const char* kFailed = "failed";
  // What only a reader tells, of a run whose processes are gone, or that is held by a
  // file.
  static constexpr const char* kKilled = "killed";
  static constexpr const char* kPaused = "paused";

  struct Device {
    std::string name;
    int64_t memory_used_bytes = 0;
    int64_t memory_total_bytes = 0;
    double busy = -1.0;  ///< 0 to 1; negative: not known
    Json to_json() const;
    /// As to_json() writes it; Json::exception else.
    static Device from_json(const Json& json);
  };
  struct Node {
    std::string name;
    static constexpr const char* kUp = "up";
    static constexpr const char* kSpare = "spare";
    static constexpr const char* kExcluded = "excluded";
    std::string state;  ///< one of these
    std::vector<int64_t> ranks;
    int64_t memory_used_bytes = 0;
    int64_t memory_total_bytes = 0;
    double cpu_busy = -1.0;  ///< of all cores, 0 to 1; negative: not known
    std::vector<Device> devices;
    Json to_json() const;
  };
  struct Rank {
    int64_t rank = 0;
    std::string node;
    int64_t process = 0;      ///< its number on its node
    std::string coordinates;  ///< "pp 1 dp 0 cp 0 tp 1"
    std::string phase;
    int64_t step = 0;
    double busy_seconds = 0.0;  ///< of a step, without waiting for others
    double wall_seconds = 0.0;
    std::string waits_for;  ///< a collective; empty: it works
    double waits_seconds = 0.0;
    std::string process_state;  ///< "running", "stopped", "gone"
    Json to_json() const;
  };

  std::string state;     ///< of those above that a supervisor writes
  double since = 0.0;    ///< seconds since 1970: of this state
  double updated = 0.0;  ///< likewise: of the file
  std::string job;       ///< Slurm's number, or empty
  std::string host;      ///< of the supervisor
  int64_t process = 0;   ///< likewise
  int64_t restarts = 0;
  int64_t max_restarts = 0;
  std::string cause;  ///< the last fault, one line
  std::vector<Node> nodes;
  std::vector<Rank> ranks;

  Json to_json() const;

  /// What a text goes through before it is kept: at most so many bytes of it, say.
  using Text = std::function<std::string(std::string_view text, size_t longest)>;
  /// What is absent or of another type is left at its default, so that other versions can
  /// be read; the object may come from anybody.
  static RunStatus from_json(const Json& json, const Text& text);
};

}  // namespace longhaul
