#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/run/place.h"

namespace longhaul::run {

// A record says what one rank is doing, in a small mapped file that another process can
// read while the rank hangs and after the rank is gone. However the rank ended, the
// kernel keeps what was written. On one machine a reader sees it at once; over a network
// file system only when the kernel writes it back, so supervisors choose a directory on
// the machine itself.

/// A collective or a group of transfers, by name. The views need to live for a call only.
struct OperationName {
  std::string_view group;
  std::string_view verb;
  int64_t number = 0;  ///< counted per group from 1, transfers apart
  uint64_t bytes = 0;
  std::string_view label;  ///< "gradient bucket 3", or empty
};
/// Returns "all_reduce number 8812 (4096 bytes) on 'tp' [gradient bucket 3]".
std::string to_string(const OperationName& name);

/// Names of phases for which a supervisor has rules of its own. A record keeps the
/// longest time of these phases.
inline constexpr std::string_view kSavePhase = "checkpoint";
/// The phase in which a rank waits for the end of a save that goes on beside the
/// training.
inline constexpr std::string_view kSaveWaitPhase = "checkpoint wait";
inline constexpr std::string_view kValidationPhase = "validation";

/// The number of operations that a record keeps, and of steps whose seconds it keeps.
inline constexpr int kRecordedOperations = 32;
inline constexpr int kRecordedSteps = 16;

/// Returns DIR/rank_00003.record.
fs::path rank_record_path(const fs::path& dir, int rank);

/// Writes one rank's record. One thread may use it. No call waits or makes a system call,
/// except to read the clock. Texts longer than their field are cut.
class RankRecord {
 public:
  /// Makes the directory and the file; a record of an earlier start is replaced. Throws
  /// InputError, and TemporaryError on a full disk.
  static RankRecord create(const fs::path& dir, int rank, int world);

  /// Says at which place of the mesh the rank is.
  void set_place(const Place& place);
  /// Says that this rank is in this phase of this step from now on. The phase before
  /// ends.
  void set(std::string_view phase, int64_t step);
  /// Says that something got done that is neither an operation nor a phase.
  void moved();
  /// Says that work of this phase has gone on beside other phases, for `seconds`.
  void lasted(std::string_view phase, double seconds);
  /// Says that an operation was started; the result names the operation in ended() and
  /// waits().
  uint64_t started(const OperationName& name);
  void ended(uint64_t operation);
  /// Says that this rank does nothing but wait for the operation, until waited() is
  /// called.
  void waits(uint64_t operation, const OperationName& name);
  void waited();
  /// Says that a step has ended: how many seconds it took, and how many this rank worked
  /// without waiting for others.
  void step_done(double wall_seconds, double busy_seconds);
  /// Says that the error which this rank throws now comes from another rank, whose record
  /// has it too. This holds until the next phase.
  void told();
  /// Says the error that ends this rank, in one line.
  void failed(std::string_view message);
  /// Says that the rank ends by itself with this exit code.
  void finished(int exit_code);

 private:
  explicit RankRecord(Mapping map) : map_(std::move(map)) {}
  Mapping map_;
};

/// An operation as the reader of a record gets it. Times are seconds since 1970.
struct RecordedOperation {
  std::string group;
  std::string verb;
  std::string label;
  int64_t number = 0;
  uint64_t bytes = 0;
  double started = 0.0;
  double ended = 0.0;  ///< 0: the operation has not ended
  OperationName name() const { return {group, verb, number, bytes, label}; }
};

/// What a record says of a rank, and a node passes on as it is.
struct RankFacts {
  int rank = 0;
  int world = 0;
  int64_t pid = 0;
  std::optional<Place> place;  ///< nothing where the rank has none yet
  int64_t step = 0;
  std::string phase;
  bool waits = false;
  /// By name of a phase with rules of its own, the seconds of the longest such phase that
  /// has ended.
  std::map<std::string, double> longest_phases;
  std::string failure;
  bool told = false;       ///< the failure is another rank's
  int exit_code = -1;      ///< -1: alive, or ended by somebody else
  int64_t steps_done = 0;  ///< steps that this process has done
  bool operator==(const RankFacts&) const = default;
};

/// What the reader of a record gets.
struct RankState : RankFacts {
  std::string host;
  double created = 0.0;
  double phase_since = 0.0;
  RecordedOperation waits_for;
  double waits_since = 0.0;
  double moved = 0.0;  ///< last progress of other work than operations; 0: never
  double step_ended = 0.0;
  // Medians of the last steps.
  double step_wall_seconds = 0.0;
  double step_busy_seconds = 0.0;
  std::vector<RecordedOperation> operations;  ///< the newest last
  /// Returns the time at which this rank was last seen to do something.
  double last_progress() const;
  /// Whether the rank ended, or wrote without pause, in the middle of a change. Then one
  /// operation or text may be half of it.
  bool torn = false;
};

/// Reads a record. Throws InputError for a file that is no whole record of this version.
RankState read_rank_record(const fs::path& path);

/// Returns one line that says what the rank waits for, what it did last, or how it
/// failed.
/// "rank 3 (pp 1 dp 0 cp 0 tp 1) step 12 phase backward: waits in all_reduce number 8812
/// (4096 bytes) on 'tp' for 64 s"
std::string to_string(const RankState& state, double now);

}  // namespace longhaul::run
