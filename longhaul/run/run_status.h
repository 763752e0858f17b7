#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/run/record_fields.h"

namespace longhaul::run {

/// How a supervised run stands: status.json in its directory, written every second.
/// Writers and readers of the file share this type.
struct RunStatus {
  static constexpr const char* kStarting = "starting";
  static constexpr const char* kTraining = "training";
  static constexpr const char* kSaving = "saving";
  static constexpr const char* kRestarting = "restarting";
  static constexpr const char* kDraining = "draining";
  static constexpr const char* kDone = "done";
  static constexpr const char* kStopped = "stopped";
  static constexpr const char* kFailed = "failed";
  // States that no supervisor writes. A reader gives them to a run whose processes are
  // gone, or which the file PAUSE makes wait.
  static constexpr const char* kKilled = "killed";
  static constexpr const char* kPaused = "paused";

  struct Device {
    std::string name;
    int64_t memory_used_bytes = 0;
    int64_t memory_total_bytes = 0;
    double busy = -1.0;  ///< 0 to 1; negative: not known
    static void each(auto& d, auto&& fields) {
      fields("name", AtMost{60, d.name}, "memory_used_bytes", d.memory_used_bytes,
             "memory_total_bytes", d.memory_total_bytes, "busy", d.busy);
    }
    Json to_json() const { return write_fields(*this); }
    /// Reads what to_json() wrote. Throws Json::exception for anything else.
    static Device from_json(const Json& json);
  };
  struct Node {
    std::string name;
    static constexpr const char* kUp = "up";
    static constexpr const char* kSpare = "spare";
    static constexpr const char* kExcluded = "excluded";
    std::string state;  ///< "up", "spare" or "excluded"
    std::vector<int64_t> ranks;
    int64_t memory_used_bytes = 0;
    int64_t memory_total_bytes = 0;
    double cpu_busy = -1.0;  ///< share of all cores, 0 to 1; negative: not known
    std::vector<Device> devices;
    static void each(auto& n, auto&& fields) {
      fields("name", AtMost{100, n.name}, "state", AtMost{20, n.state}, "ranks", n.ranks,
             "memory_used_bytes", n.memory_used_bytes, "memory_total_bytes",
             n.memory_total_bytes, "cpu_busy", n.cpu_busy, "devices", n.devices);
    }
  };
  struct Rank {
    int64_t rank = 0;
    std::string node;
    int64_t process = 0;  ///< the process number on the node
    std::string place;    ///< "pp 1 dp 0 cp 0 tp 1"
    std::string phase;
    int64_t step = 0;
    double busy_seconds = 0.0;  ///< seconds of a step without waiting for other ranks
    double wall_seconds = 0.0;
    std::string waits_for;  ///< a collective; empty: it works
    double waits_seconds = 0.0;
    std::string process_state;  ///< "running", "stopped", "gone"
    static void each(auto& r, auto&& fields) {
      fields("rank", r.rank, "node", AtMost{100, r.node}, "pid", r.process, "coordinates",
             AtMost{60, r.place}, "phase", AtMost{40, r.phase}, "step", r.step,
             "busy_seconds", r.busy_seconds, "wall_seconds", r.wall_seconds, "waits_for",
             AtMost{200, r.waits_for}, "waits_seconds", r.waits_seconds, "process",
             AtMost{20, r.process_state});
    }
  };

  std::string state;     ///< one of the states that a supervisor writes
  double since = 0.0;    ///< when this state began, in seconds since 1970
  double updated = 0.0;  ///< when the file was written, in seconds since 1970
  std::string job;       ///< Slurm's number, or empty
  std::string host;      ///< the supervisor's machine
  int64_t process = 0;   ///< the supervisor's process
  int64_t restarts = 0;
  int64_t max_restarts = 0;
  std::string cause;  ///< the last fault, one line
  std::vector<Node> nodes;
  std::vector<Rank> ranks;

  static void each(auto& s, auto&& fields) {
    fields("state", AtMost{30, s.state}, "since", s.since, "updated", s.updated, "job",
           AtMost{60, s.job}, "host", AtMost{100, s.host}, "pid", s.process, "restarts",
           s.restarts, "max_restarts", s.max_restarts, "cause", s.cause, "nodes", s.nodes,
           "ranks", s.ranks);
  }
  Json to_json() const { return write_fields(*this); }
  /// Reads a status that anybody, or another version, may have written: what is absent or
  /// of another type has its default. Each text goes through `text`.
  static RunStatus from_json(const Json& json, const TextFilter& text);
};

}  // namespace longhaul::run
