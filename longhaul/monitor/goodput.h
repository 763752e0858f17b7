#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/monitor/records.h"
#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// What a second of a run was spent on.
enum class TimeClass : uint8_t {
  Compute,     ///< steps that count, without waiting for their batch
  Data,        ///< waiting of these steps for the batch
  Save,        ///< training stood still for a checkpoint
  Validation,  ///< validation
  Redone,      ///< steps that count no more: a later start or a rollback did them again
  Restart,     ///< start-up, loading, and the time from a failure to the next start
  Paused,      ///< held by a person
  Suspended,   ///< all processes were stopped, as by scontrol suspend
  Idle,        ///< allocated, but nobody ran or supervised the run
  Waiting,     ///< between jobs: nothing was allocated
  Other        ///< between steps: log, first checks; and the step under way
};
inline constexpr size_t kTimeClasses = 11;

/// The names of a class of time, and what it means.
struct ClassText {
  const char* name;     ///< for people: "compute", "waiting for data", ...
  const char* key;      ///< for JSON: "compute", "data", ...
  const char* meaning;  ///< what the class means, in a few words
};

const ClassText& text_of(TimeClass kind);

/// A part of the time of a run, in microseconds since 1970, with its class.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
  TimeClass kind = TimeClass::Other;
};

/// Where the time of a run went, from its first start over all restarts and jobs. The
/// spans lie end to end, so that the classes add up to the whole exactly.
struct Ledger {
  std::vector<Span> spans;
  std::array<int64_t, kTimeClasses> micros{};
  int64_t steps_counted = 0;
  int64_t steps_redone = 0;
  int64_t starts = 0;

  int64_t total_micros() const;
  /// Returns the first time; 0 if the ledger is empty.
  int64_t begin() const { return spans.empty() ? 0 : spans.front().begin; }
  /// Returns the last time; 0 if the ledger is empty.
  int64_t end() const { return spans.empty() ? 0 : spans.back().end; }
  double total_seconds() const { return static_cast<double>(total_micros()) * 1e-6; }
  double seconds(TimeClass kind) const {
    return static_cast<double>(micros[static_cast<size_t>(kind)]) * 1e-6;
  }
  /// Returns the share of a class in the whole time; NaN if the ledger is empty.
  double share(TimeClass kind) const;
  /// Returns the share of the whole time that is compute of steps that count.
  double goodput() const { return share(TimeClass::Compute); }
  /// Returns the goodput without the time between jobs and in a suspension, in which
  /// nothing was allocated. Idle time within a job counts. NaN if nothing was allocated.
  double goodput_of_allocation() const;
};

/// Makes the ledger of a run up to `until`, which is now (seconds since 1970) if somebody
/// runs or supervises the run; without it the ledger ends with the run's last sign of
/// life.
Ledger make_ledger(const Records& records, const std::vector<Event>& events,
                   std::optional<double> until);

/// Returns the seconds for which nodes were allocated to a run, over all nodes: the
/// ledger's time without the time between jobs and in suspensions, times the nodes of the
/// start that it belongs to. A restart belongs to the start that it leads to, once that
/// start's process has begun. Nodes without ranks do not count.
double node_seconds(const Ledger& ledger, const std::vector<Event>& events);

/// Returns the shares of the classes in `parts` equal parts of the whole time. Each part
/// adds up to 1.
std::vector<std::array<double, kTimeClasses>> ledger_parts(const Ledger& ledger,
                                                           size_t parts);

}  // namespace longhaul::monitor
