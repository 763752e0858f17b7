#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/run_config.h"
#include "longhaul/monitor/line_tail.h"
#include "longhaul/monitor/plain_text.h"
#include "longhaul/monitor/records.h"
#include "longhaul/monitor/run_clock.h"
#include "longhaul/run/events.h"
#include "longhaul/run/run_status.h"
#include "longhaul/system/owner_lock.h"

namespace longhaul::monitor {

/// Whether a run may begin in `dir` yet: nothing is there, or what `submit` leaves.
bool may_become_run(const fs::path& dir);

/// A line of events.jsonl. `fields` is what another process wrote: shown only through
/// plain_text.
struct Event {
  std::string kind;
  double time = 0.0;  ///< seconds since 1970
  Json fields;
  int64_t attempt() const { return EventHead::attempt_of(fields); }  ///< -1: none
  /// What it says as an event of such a kind; texts are plain.
  template <typename Kind>
  Kind as() const {
    return read_event<Kind>(fields, plain_text);
  }
};

struct CheckpointInfo {
  int64_t step = 0;
  double saved = 0.0;  ///< seconds since 1970: the manifest's
  double bytes = 0.0;
  bool valid = false;   ///< the manifest reads and every file has its size
  std::string problem;  ///< why not; plain
};

/// What a run directory says, read without writing to it and without stopping whoever
/// writes. Damaged or hostile files cost a note, never the reader. Not thread-safe.
class RunFiles {
 public:
  /// InputError when `dir` is no directory or holds nothing of a run.
  explicit RunFiles(fs::path dir);

  /// Reads what is new: of metrics and events only bytes that were not there before. True
  /// when there was anything.
  bool refresh();

  const fs::path& dir() const { return dir_; }
  const Records& records() const { return records_; }
  const std::vector<Event>& events() const { return events_; }
  /// The clock of all times in records() and events().
  const RunClock& clock() const { return clock_; }
  /// Texts are plain.
  const std::optional<RunStatus>& status() const { return status_; }
  const std::optional<Json>& results() const { return results_; }
  /// Nothing where the run never had a writer.
  const std::optional<LockState>& lock() const { return lock_; }
  /// config.toml, and its text (plain but for line ends).
  const std::optional<RunConfig>& config() const { return config_; }
  const std::string& config_text() const { return config_text_; }
  /// The step at which the run ends, where its files say it.
  std::optional<int64_t> last_step() const;

  /// All checkpoints by ascending step; whether each is whole.
  std::vector<CheckpointInfo> checkpoints();
  /// The newest valid one.
  std::optional<CheckpointInfo> newest_checkpoint();
  /// The step of the newest checkpoint by the run's own record, where it is gone: neither
  /// here nor where the run wrote it. Nothing where the record cannot be read.
  std::optional<int64_t> missing_step() const;

  /// What could not be read, a line each; plain.
  std::vector<std::string> notes() const;

 private:
  /// When a small file was last changed, to read it only then.
  struct Stamp {
    int64_t time = -1;
    uint64_t size = 0;
    bool operator==(const Stamp&) const = default;
  };
  template <typename Use>
  void read_changed(const char* name, Stamp& stamp, uint64_t limit, Use use);
  void add_event(std::string_view line);
  void settle_takebacks();
  void read_lock();
  fs::path checkpoint_dir() const;
  std::vector<std::pair<int64_t, fs::path>> step_directories() const;
  const CheckpointInfo& judge(int64_t step, const fs::path& path);

  fs::path dir_;
  LineTail metrics_tail_;
  LineTail events_tail_;
  Records records_;
  std::vector<Event> events_;
  RunClock clock_;
  size_t settled_ = 0;  ///< events whose take-backs are done
  uint64_t event_bytes_ = 0;
  int64_t events_left_out_ = 0;
  int64_t unreadable_events_ = 0;
  std::optional<RunStatus> status_;
  std::optional<Json> results_;
  std::optional<RunConfig> config_;
  std::string config_text_;
  std::optional<LockState> lock_;
  Stamp status_stamp_;
  Stamp results_stamp_;
  Stamp config_stamp_;
  std::map<std::string, std::string> problems_;  ///< by file
  std::map<fs::path, std::pair<Stamp, CheckpointInfo>> judged_;
};

}  // namespace longhaul::monitor
