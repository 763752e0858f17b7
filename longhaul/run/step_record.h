#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::run {

// The lines of metrics.jsonl (run/files.h): a step, a validation, or a task. Writers and
// readers share this file.

/// Stands for a figure that a record does not say.
inline constexpr double kNoFigure = std::numeric_limits<double>::quiet_NaN();
/// Seconds since 1970 of the year 5138: a time beyond is no time.
inline constexpr double kLastTime = 1e11;

/// The numbers of a step that also tell how a run stands.
struct StepNumbers {
  int64_t step = 0;
  double loss = 0.0;
  double grad_norm = 0.0;
  double lr = 0.0;
  double step_time = 0.0;  ///< seconds, waiting for data included
  double seqs_per_s = 0.0;
  double tokens_per_s = 0.0;
  double mfu = 0.0;          ///< counts full attention
  double memory_peak = 0.0;  ///< bytes, the largest of the ranks
  // Only a model with experts has these numbers.
  double expert_use = kNoFigure;      ///< the layers' smallest share of experts in use
  double expert_busiest = kNoFigure;  ///< most tokens of an expert, over an even share
  double router_entropy = kNoFigure;  ///< nats, mean over the layers with experts
};

/// What training on pairs of a chosen and a rejected answer measures, as TRL names it:
/// means over pairs. Other runs have none of these numbers.
struct PairFigures {
  double rewards_chosen = kNoFigure;
  double rewards_rejected = kNoFigure;
  double rewards_margins = kNoFigure;     ///< chosen less rejected
  double rewards_accuracies = kNoFigure;  ///< the share of pairs with a positive margin
  double logps_chosen = kNoFigure;
  double logps_rejected = kNoFigure;
};

/// One optimizer step. When it is read, a number that its line lacks, or has as null (a
/// loss that is not finite), becomes NaN, and a duration that it lacks becomes 0.
struct StepRecord : StepNumbers, PairFigures {
  int attempt = 1;         ///< which start of the run did it
  bool applied = true;     ///< false: a bad step, whose update was not made
  double time = 0.0;       ///< seconds since 1970, at its end
  double data_time = 0.0;  ///< the part of step_time that waited for the batch
  double tokens = 0.0;     ///< tokens of the run so far
  /// The terms of the loss, if there are several. They are for people: no program reads
  /// them.
  std::vector<std::pair<std::string, double>> losses = {};
  double mfu_causal = 0.0;
  double tflops_per_device = 0.0;       ///< counts full attention
  double peak_tflops_per_device = 0.0;  ///< what mfu and mfu_causal relate to
  double host_memory = 0.0;             ///< bytes, resident memory of rank 0
  double host_anonymous = kNoFigure;    ///< bytes, the part that belongs to no file
  double host_file = kNoFigure;         ///< bytes, the part of mapped files
  double epoch = 0.0;
  /// The hash of the step's data (data::StepBatch::content_hash over all ranks); nothing
  /// in a line of an older program.
  std::optional<uint64_t> data_hash = {};
};

/// Tokens of the run so far by source, in the order of data.train. Sources that only
/// earlier starts used come last. They are in a step's line for people: no program reads
/// them.
using SourceTokens = std::vector<std::pair<std::string, int64_t>>;

/// Bytes of memory in use at points of a start, by their names, for people.
using PhaseMemory = std::vector<std::pair<std::string, int64_t>>;

/// A figure of a task over its questions.
struct TaskFigure {
  std::string name;  ///< lm-eval's name of the metric
  double value = kNoFigure;
  double error = kNoFigure;  ///< standard error
};
/// Returns "acc 0.2500 +- 0.0433, acc_norm 0.3000 +- 0.0458".
std::string describe(std::span<const TaskFigure> figures);
/// Returns {"acc": 0.25, "acc_stderr": 0.0433}.
Json to_json(std::span<const TaskFigure> figures);

/// The loss of validation data, or the figures of a task.
struct ValidationRecord {
  int64_t step = 0;
  int attempt = 1;
  double time = 0.0;     ///< seconds since 1970, at its end
  double seconds = 0.0;  ///< seconds that the validation took
  double loss = 0.0;     ///< NaN for a task
  std::string name;      ///< name of the validation data, or of the task
  PairFigures pairs = {};
  std::vector<TaskFigure> figures = {};  ///< of a task, at least one
  int64_t questions = 0;                 ///< of a task
  bool of_task() const { return !figures.empty(); }
  /// Returns whether the loss is that of pairs, which has no perplexity.
  bool of_pairs() const { return std::isfinite(pairs.rewards_margins); }
  double perplexity() const;
};

/// `memory` has the bytes in use at points of a start, for the line of a step; most lines
/// have none.
Json to_json(const StepRecord& record, const SourceTokens& sources,
             const PhaseMemory& memory = {});
Json to_json(const ValidationRecord& record);

// These are the names of figures in a line. Code that shows the same figure elsewhere
// takes them from here.
inline constexpr const char* kStepKey = "step";
inline constexpr const char* kTimeKey = "time";
inline constexpr const char* kLossKey = "loss";
inline constexpr const char* kGradNormKey = "grad_norm";
inline constexpr const char* kLrKey = "lr";
inline constexpr const char* kStepTimeKey = "step_time_s";
inline constexpr const char* kSeqsPerSecondKey = "seqs_per_s";
inline constexpr const char* kTokensPerSecondKey = "tokens_per_s";
inline constexpr const char* kMfuKey = "mfu";
inline constexpr const char* kMfuCausalKey = "mfu_causal";
inline constexpr const char* kMemoryPeakKey = "memory_peak_bytes";
inline constexpr const char* kExpertUseKey = "expert_use";
inline constexpr const char* kExpertBusiestKey = "expert_busiest";
inline constexpr const char* kRouterEntropyKey = "router_entropy";
inline constexpr const char* kSourceTokensKey = "source_tokens";
inline constexpr const char* kPhaseMemoryKey = "phase_memory_bytes";
inline constexpr const char* kDataHashKey = "data_hash";  ///< 16 hexadecimal digits
inline constexpr const char* kValidationKey = "validation";
inline constexpr const char* kTaskKey = "task";
/// What stands behind a metric's name in the name of its standard error, as in lm-eval.
inline constexpr std::string_view kErrorSuffix = "_stderr";

/// Bytes behind a line that may be read, for a parser that looks ahead.
inline constexpr size_t kRecordPadding = 64;
/// Longer lines are no records.
inline constexpr size_t kLongestRecord = size_t{1} << 20;

/// The figures of pairs, by the names that they have in a line.
struct PairFigure {
  const char* key;
  double PairFigures::* member;
};
inline constexpr PairFigure kPairFigures[] = {
    {"rewards/chosen", &PairFigures::rewards_chosen},
    {"rewards/rejected", &PairFigures::rewards_rejected},
    {"rewards/margins", &PairFigures::rewards_margins},
    {"rewards/accuracies", &PairFigures::rewards_accuracies},
    {"logps/chosen", &PairFigures::logps_chosen},
    {"logps/rejected", &PairFigures::logps_rejected}};

/// Reads one line, which may come from anybody, with kRecordPadding readable bytes behind
/// it; std::monostate if it is no record.
using RunRecord = std::variant<std::monostate, StepRecord, ValidationRecord>;
RunRecord read_record(std::string_view padded);

}  // namespace longhaul::run
