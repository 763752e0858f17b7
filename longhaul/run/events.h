#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/run/record_fields.h"

namespace longhaul::run {

// The lines of events.jsonl (run/files.h) say what happened to a run. Each line has a
// kind and a time. For each kind of which more is read, this file has a type with its
// members. Writers and readers of an event share this file.

/// What every event says.
struct EventHead {
  std::string kind;      ///< empty: it is no event
  double time = -1.0;    ///< seconds since 1970 by the clock of `boot`
  std::string boot;      ///< see ClockName (base/clock.h); empty in old runs
  double booted = 0.0;   ///< see ClockName; 0 in old runs
  int64_t attempt = -1;  ///< number of the start that wrote it; -1: not by a start
  /// Reads the head of a line, which is an object and may have been written by anybody.
  static EventHead read(const Json& line, const TextFilter& text);
  /// Returns the attempt alone.
  static int64_t attempt_of(const Json& line);
  /// Returns whether a member of a line belongs to the head.
  static bool has(std::string_view key);
};

/// Returns the line of an event that happens now.
Json event_line(const char* kind, Json fields);

// Readers of the events file take only the kind of these events.
inline constexpr const char* kSupervisorEndEvent = "supervisor_end";
inline constexpr const char* kHangEvent = "hang";
inline constexpr const char* kRestartEvent = "restart";
inline constexpr const char* kResumedEvent = "resumed";  ///< training goes on after PAUSE
inline constexpr const char* kTrafficEvent = "traffic";
inline constexpr const char* kPhaseMemoryEvent = "phase_memory";
inline constexpr const char* kBadSaveEvent = "checkpoint_failed";
inline constexpr const char* kMirroredEvent = "mirrored";
inline constexpr const char* kMirrorBehindEvent = "mirror_behind";
inline constexpr const char* kMirrorFailedEvent = "mirror_failed";
inline constexpr const char* kMirrorRestoreEvent = "mirror_restore";
inline constexpr const char* kClockJumpEvent = "clock_jump";
inline constexpr const char* kCorruptionEvent = "corruption";
inline constexpr const char* kPeerMemoryEvent = "peer_memory";
inline constexpr const char* kMemoryResumeEvent = "memory_resume";
inline constexpr const char* kHealthEvent = "health";
inline constexpr const char* kSharedFindingEvent = "shared_finding";
inline constexpr const char* kNodeReadmittedEvent = "node_readmitted";
inline constexpr const char* kStorageSilentEvent = "storage_silent";
inline constexpr const char* kStorageAnswersEvent = "storage_answers";
inline constexpr const char* kStragglerEvent = "straggler";
inline constexpr const char* kSettingsEvent =
    "settings_changed";  ///< settings differ from the checkpoint's
inline constexpr const char* kLossRoseEvent = "validation_rose";  ///< beyond stop_above
inline constexpr const char* kTooSlowEvent = "too_slow";          ///< below run.expect
inline constexpr const char* kLossMissedEvent = "golden_missed";  ///< see run.golden

// Kinds whose members are read too. LH_FIELDS lists the members that a line holds.

/// A start of the ranks, ready for its first step.
struct StartEvent {
  static constexpr const char* kKind = "start";
  int64_t attempt = 0;
  int64_t step = 0;       ///< step of the checkpoint that the start continues from
  int64_t last_step = 0;  ///< the step at which the run is to end
  int64_t world = 1;
  std::string job;
  int64_t requeues = 0;
  double seconds = 0.0;  ///< since the process began
  int64_t nodes = 0;     ///< machines with ranks; 0: an older release did not say
  LH_FIELDS(attempt, step, last_step, world, job, requeues, seconds, nodes);
};

/// Rank 0 has decided where the decay begins and the run ends (run.until, run.budget).
struct EndDecidedEvent {
  static constexpr const char* kKind = "end_decided";
  int64_t step = 0;           ///< steps done
  int64_t decay_after = 0;    ///< the last step before the decay
  int64_t last_step = 0;      ///< the step at which the run is to end
  int64_t world = 1;          ///< the number of ranks that it was decided for
  double seconds_left = 0.0;  ///< until the date, or until the sum is spent
  LH_FIELDS(step, decay_after, last_step, world, seconds_left);
};

/// An attempt ends without an error.
struct EndEvent {
  static constexpr const char* kKind = "end";
  /// Values of `stopped_by` for a run that only a person is to start again.
  static constexpr const char* kByStopFile = "the file STOP";
  static constexpr const char* kByStopAbove = "stop_above of data.validation";
  static constexpr const char* kByExpect = "run.expect";
  static constexpr const char* kByGolden = "run.golden";
  bool for_good() const {
    return stopped_by == kByStopFile || stopped_by == kByStopAbove ||
           stopped_by == kByExpect || stopped_by == kByGolden;
  }
  int64_t attempt = 0;
  std::optional<int64_t> step;
  int64_t signal = 0;
  std::string stopped_by;  ///< empty: all steps are done
  double seconds = 0.0;
  LH_FIELDS(attempt, step, signal, stopped_by, seconds);
};

/// An attempt ends by an error.
struct FailureEvent {
  static constexpr const char* kKind = "failure";
  int64_t attempt = 0;
  std::string message;
  LH_FIELDS(attempt, message);
};

/// A start that ended before its first step: it was refused, or there was nothing to do.
/// It has no number, and the run is as it was before.
struct RefusedStartEvent {
  static constexpr const char* kKind = "refused_start";
  std::string message;
  LH_FIELDS(message);
};

/// A checkpoint is durable.
struct CheckpointEvent {
  static constexpr const char* kKind = "checkpoint";
  int64_t attempt = 1;
  int64_t step = 0;
  int64_t bytes = 0;
  double seconds = 0.0;         ///< seconds from the save's begin until it was durable
  double longest = 0.0;         ///< the longest of the start's saves so far
  std::optional<double> stall;  ///< how long training stood still; absent: `seconds`
  double waited = 0.0;          ///< the part of `stall` that waited for the save before
  LH_FIELDS(attempt, step, bytes, seconds, longest, stall, waited);
};

/// A checkpoint, or a state kept in memory, was not used, and an older one was loaded
/// instead.
struct FallBackEvent {
  static constexpr const char* kKind = "fall_back";
  std::string from;
  std::string to;
  std::string message;
  LH_FIELDS(from, to, message);
};

/// The run begins with a checkpoint of another run. A run that ends before its first own
/// checkpoint begins so again, and the last of its events counts.
struct BranchEvent {
  static constexpr const char* kKind = "branch";
  /// Values of `took`. A run that took only weights counts its steps anew.
  static constexpr const char* kState = "state";
  static constexpr const char* kWeights = "weights";
  bool anew() const { return took == kWeights; }
  std::string run;   ///< the other run's identity; empty: an older release saved it
  std::string path;  ///< the checkpoint
  int64_t step = 0;  ///< of the checkpoint
  std::string took;
  LH_FIELDS(run, path, step, took);
};

/// A step whose update was not made.
struct BadStepEvent {
  static constexpr const char* kKind = "bad_step";
  int64_t attempt = 0;
  int64_t step = 0;
  std::string kind;  ///< "no_targets", "nonfinite" or "spike"
  Json loss;         ///< a text where it is not finite
  Json grad_norm;    ///< a text where it is not finite
  std::string why;
  std::string action;  ///< "stop", "skip" or "rollback"
  Json bad_steps;      ///< the newest of them
  LH_FIELDS(attempt, step, kind, loss, grad_norm, why, action, bad_steps);
};

/// The run went back, and leaves out the batches of the steps that it skipped.
struct RollbackEvent {
  static constexpr const char* kKind = "rollback";
  int64_t from_step = 0;
  int64_t to_step = 0;
  int64_t skipped_from = 0;
  int64_t skipped_to = 0;
  LH_FIELDS(from_step, to_step, skipped_from, skipped_to);
};

/// The text with which the model continues one of the prompts of the section [log].
struct SampleEvent {
  static constexpr const char* kKind = "sample";
  int64_t step = 0;
  std::string prompt;
  std::string text;
  LH_FIELDS(step, prompt, text);
};

/// The gradient norms of a step by part of the model, before clipping.
struct LayerNormsEvent {
  static constexpr const char* kKind = "layer_norms";
  int64_t step = 0;
  double embedding = 0.0;
  std::vector<double> layers;
  double head = 0.0;  ///< the last norm's and the output projection's gradients
  LH_FIELDS(step, embedding, layers, head);
};

/// What the routers of a model with experts did with the tokens of a step.
struct ExpertLoadsEvent {
  static constexpr const char* kKind = "expert_loads";
  struct Layer {
    int64_t layer = 0;
    double effective = 0.0;       ///< number of experts in effective use
    double entropy = 0.0;         ///< mean entropy of the router's probabilities, in nats
    std::vector<int64_t> counts;  ///< tokens that each expert got
    LH_FIELDS(layer, effective, entropy, counts);
  };
  int64_t step = 0;
  std::vector<Layer> layers;  ///< the layers with experts
  LH_FIELDS(step, layers);
};

/// A layer has begun to send its tokens to few of its experts ([experts] warn_below).
struct RouterCollapsedEvent {
  static constexpr const char* kKind = "router_collapsed";
  int64_t step = 0;
  int64_t layer = 0;
  double effective = 0.0;  ///< number of experts in effective use
  int64_t experts = 0;     ///< number of experts of the layer
  int64_t expert = 0;      ///< the busiest expert
  double busiest = 0.0;    ///< tokens of the busiest expert, over an even share
  static void each(auto& e, auto&& fields) {
    fields("step", e.step, "layer", e.layer, "effective", e.effective, "experts",
           e.experts, "busiest_expert", e.expert, "busiest", e.busiest);
  }
};

/// A person or a program asks the run for something: by a signal, or by a file in the
/// run's directory.
struct SignalEvent {
  static constexpr const char* kKind = "signal";
  int64_t step = 0;
  std::optional<std::string> signal;
  std::optional<std::string> file;
  LH_FIELDS(step, signal, file);
};

/// A supervisor begins; kSupervisorEndEvent ends it.
struct SupervisorStartEvent {
  static constexpr const char* kKind = "supervisor_start";
  std::string job;
  int64_t requeues = 0;
  std::string host;
  int64_t ranks = 0;
  int64_t max_restarts = 0;
  LH_FIELDS(job, requeues, host, ranks, max_restarts);
};

/// A supervisor found the ranks dead, failed or hanging.
struct FaultEvent {
  static constexpr const char* kKind = "fault";
  /// The value of `kind` if a setting or an input is wrong.
  static constexpr const char* kSettings = "settings";
  std::string kind;
  int64_t rank = 0;
  std::string node;
  int64_t step = 0;
  std::string cause;
  LH_FIELDS(kind, rank, node, step, cause);
};

/// All processes of the run stood still, as after `scontrol suspend`.
struct SuspendedEvent {
  static constexpr const char* kKind = "suspended";
  double seconds = 0.0;
  double until = 0.0;  ///< seconds since 1970
  LH_FIELDS(seconds, until);
};

/// Where the time of a step went, on rank 0 ([profile]).
struct ProfileEvent {
  static constexpr const char* kKind = "profile";
  int64_t step = 0;
  double seconds = 0.0;
  std::string clock;  ///< whose time operations have: "host", or the device's name
  Json parts;         ///< [{"name", "seconds"}]: what the step is made of
  /// [{"name", "calls", "seconds"}], the longest first: `seconds` excludes the time of
  /// other operations that an operation calls. Waits for other ranks are among the
  /// operations.
  Json operations;
  /// [{"name", "shape", "calls", "seconds", "flops"}], the longest first: products of
  /// matrices by their size, "rows x summed x columns". `flops` counts all calls.
  Json products;
  LH_FIELDS(step, seconds, clock, parts, operations, products);
};

/// No start is possible now: the job goes back to the queue.
struct RequeueEvent {
  static constexpr const char* kKind = "requeue";
  std::string reason;
  LH_FIELDS(reason);
};

/// Returns what an event says besides its head.
template <typename Event>
Json event_fields(const Event& event) {
  return write_fields(event);
}

/// Reads an event from a line, which is an object and may have been written by anybody.
/// Members that another version does not write keep their defaults.
template <typename Event>
Event read_event(const Json& line, const TextFilter& text) {
  return read_fields<Event>(line, text);
}

}  // namespace longhaul::run
