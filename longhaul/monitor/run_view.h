#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/monitor/goodput.h"
#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// The speed of one rank compared with the others. A rank with the ratio 1.2 takes a
/// fifth longer than the median.
struct RankSpeed {
  run::RunStatus::Rank rank;
  double ratio = 0.0;  ///< busy seconds over their median; 0: not known
};

/// A curve of the run: how a quantity, such as the loss, went over the steps that count.
struct Course {
  std::vector<double> values;  ///< in the order of steps: means of shares of the run
  double first = 0.0;          ///< NaN without a step, like the numbers that follow
  double last = 0.0;
  double least = 0.0;
  double most = 0.0;
};

/// The state of a run, put together from its files. Texts are plain. The numbers of
/// StepNumbers are those of the last step, and NaN without one; the time of a step, the
/// rates and mfu are medians of the last steps.
struct RunView : run::StepNumbers {
  std::string name;
  double now = 0.0;         ///< seconds since 1970
  std::string state;        ///< as in status.json; "killed", "not started",
                            ///< "not running" (no lock is there) and "paused" besides
  std::string detail;       ///< why, in one line; may be empty
  bool alive = false;       ///< somebody trains or supervises
  bool ended = false;       ///< done, failed or stopped: nothing more will come by itself
  bool on_request = false;  ///< ended by STOP or a rule: only a person starts it again
  std::string job;
  std::string host;
  int64_t attempt = 0;
  int64_t restarts = 0;
  std::optional<int64_t> last_step;
  double step_age = 0.0;  ///< seconds since the last step; NaN without one
  std::optional<double> seconds_left;
  std::optional<run::ValidationRecord> validation;
  std::optional<CheckpointInfo> checkpoint;
  Ledger ledger;
  Course loss_course;
  Course memory_course;  ///< bytes of resident memory, of rank 0
  std::vector<run::RunStatus::Node> nodes;
  std::vector<RankSpeed> ranks;    ///< the slowest first
  std::vector<std::string> notes;  ///< what could not be read
};

/// Makes the view of a run at `now`, in seconds since 1970. Reads checkpoints' manifests
/// besides what `run` holds.
RunView make_view(RunFiles& run, double now);

/// Returns whether the newest start that trained has reported that all its steps are
/// done.
bool is_done(const std::vector<Event>& events);

Json to_json(const RunView& view);
Json to_json(const Ledger& ledger);

/// Returns what an event says, for people and in plain text: "attempt 2 from step 22, 8
/// ranks".
std::string describe(const Event& event);
/// Returns whether an event is shown to people in a line. "traffic" is not, and "sample"
/// has a table of its own in the report.
bool is_shown(const Event& event);

}  // namespace longhaul::monitor
