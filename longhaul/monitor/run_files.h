#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
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

/// Returns whether a run has not begun in `dir` but may begin there: nothing is there, or
/// only what `submit` leaves.
bool may_become_run(const fs::path& dir);

/// A line of events.jsonl. Another process wrote `fields`, which are shown only through
/// plain_text.
struct Event {
  std::string kind;
  double time = 0.0;  ///< seconds since 1970
  Json fields;
  int64_t attempt() const { return run::EventHead::attempt_of(fields); }  ///< -1: none
  /// Returns the line as an event of type Kind, with plain texts.
  template <typename Kind>
  Kind as() const {
    return run::read_event<Kind>(fields, plain_text);
  }
};

struct CheckpointInfo {
  int64_t step = 0;
  double saved = 0.0;  ///< time in the manifest, in seconds since 1970; 0: unknown
  double bytes = 0.0;
  bool valid = false;      ///< the manifest reads and every file has its size
  std::string problem;     ///< why the checkpoint is not valid, in plain text
  bool committed = false;  ///< a manifest is there
};

/// A version of a file, which tells whether the file must be read again.
struct FileStamp {
  int64_t nanoseconds = -1;  ///< time of the last change, since 1970
  uint64_t size = 0;
  bool regular = false;
  bool operator==(const FileStamp&) const = default;
};

/// Reads what a run directory says, without writing to it and without stopping whoever
/// writes. A damaged or hostile file leads to a note, and reading goes on. Not
/// thread-safe.
class RunFiles {
 public:
  /// Opens a run's directory. Throws InputError when `dir` is no directory or holds
  /// nothing of a run.
  explicit RunFiles(fs::path dir);

  /// Reads what is new, and returns whether there was anything. It reads only those bytes
  /// of metrics and events that were not there before.
  bool refresh();

  const fs::path& dir() const { return dir_; }
  const Records& records() const { return records_; }
  const std::vector<Event>& events() const { return events_; }
  /// Returns the clock of all times in records() and events().
  const RunClock& clock() const { return clock_; }
  /// Returns status.json with plain texts.
  const std::optional<run::RunStatus>& status() const { return status_; }
  const std::optional<Json>& results() const { return results_; }
  /// Returns the run's lock; nothing if the run never had a writer.
  const std::optional<system::LockState>& lock() const { return lock_; }
  /// Returns config.toml, and its text as it is.
  const std::optional<RunConfig>& config() const { return config_; }
  const std::string& config_text() const { return config_text_; }
  /// Returns the step at which the run ends, if its files say it.
  std::optional<int64_t> last_step() const;

  /// Returns all checkpoints by ascending step, and whether each is whole.
  std::vector<CheckpointInfo> checkpoints();
  /// Returns the newest valid checkpoint.
  std::optional<CheckpointInfo> newest_checkpoint();
  /// Returns the step of the newest checkpoint by the run's own record, if that
  /// checkpoint is gone: neither here nor where the run wrote it. Returns nothing if the
  /// record cannot be read.
  std::optional<int64_t> missing_step() const;

  /// Returns what could not be read, in plain lines.
  std::vector<std::string> notes() const;

 private:
  /// Counts of the lines of events.jsonl since the file was begun.
  struct EventCounts {
    uint64_t bytes = 0;  ///< bytes of the events that are kept
    int64_t left_out = 0;
    int64_t unreadable = 0;
  };
  /// The events of experts' loads, which are the largest events by far and serve only for
  /// a picture. Every `every`-th of them keeps its loads.
  struct LoadEvents {
    std::vector<std::pair<size_t, uint64_t>> kept;  ///< index in events_, and bytes
    uint64_t bytes = 0;                             ///< bytes of those that are kept
    int64_t told = 0;
    int64_t every = 1;
  };
  template <typename Use>
  void read_changed(const char* name, FileStamp& stamp, uint64_t limit, Use use);
  void add_event(std::string_view line);
  void drop_refused_supervisor();
  void thin_loads(uint64_t bytes);
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
  EventCounts event_counts_;
  LoadEvents loads_;
  std::optional<run::RunStatus> status_;
  std::optional<Json> results_;
  std::optional<RunConfig> config_;
  std::string config_text_;
  std::optional<system::LockState> lock_;
  FileStamp status_stamp_;
  FileStamp results_stamp_;
  FileStamp config_stamp_;
  std::map<std::string, std::string> problems_;  ///< by file
  std::map<fs::path, std::pair<FileStamp, CheckpointInfo>> judged_;
};

}  // namespace longhaul::monitor
