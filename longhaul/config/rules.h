#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/config/field.h"
#include "longhaul/config/run_config.h"

namespace longhaul::config {

/// Sets the settings that depend on others: forms of the schedule, LAMB's defaults, and
/// the document mask of rows of whole documents.
void resolve(RunConfig& config);
void resolve_optimizer(RunConfig& config);
void resolve_data(RunConfig& config);

/// A larger number of steps is a typing error.
inline constexpr int64_t kMaxSteps = 1'000'000'000'000;

/// Checks every rule between settings that needs neither the model nor the number of
/// ranks, and returns warnings. Throws ConfigError at the place of the setting.
std::vector<std::string> check_rules(const RunConfig& config);

/// Checks the rules of [data].
void check_data(const RunConfig& config, std::vector<std::string>& warnings);

/// Checks the rules of [adapter].
void check_adapter(const RunConfig& config, std::vector<std::string>& warnings);
/// Returns whether the scale of an adapter with rank and alpha is a positive number in
/// fp32.
bool has_scale(const AdapterSection& section);
/// Checks the rules of [preference].
void check_preference(const RunConfig& config, std::vector<std::string>& warnings);

/// Checks the rules of the learning rate.
void check_schedule(const RunConfig& config, std::vector<std::string>& warnings);

/// Checks the rules of bad steps and of faults made on purpose.
void check_bad_steps(const RunConfig& config, std::vector<std::string>& warnings);

/// Checks the rules of the schedule that need the run's length in steps.
void check_schedule_length(const RunConfig& config, int64_t steps);

/// Throws ConfigError if the run's sequences or tokens do not fit 64 bits. The error
/// names `key`, from which the steps come.
void check_run_length(const RunConfig& config, int64_t steps, const std::string& key);

/// Returns where a key was set ("run.toml:3:9"), else the file, else an empty text.
std::string origin(const RunConfig& config, const std::string& key);
bool given(const RunConfig& config, const std::string& key);

/// Throws ConfigError at the place of a key. The message is formatted as by fmt::format.
template <class... Args>
[[noreturn]] void fail_key(const RunConfig& config, const std::string& key,
                           fmt::format_string<Args...> message, Args&&... args) {
  fail_at(origin(config, key), fmt::format(message, std::forward<Args>(args)...));
}

/// Adds warnings about keys that were given and have no effect.
struct WarnUnused {
  const RunConfig& config;
  std::vector<std::string>& warnings;
  void operator()(bool no_effect, const std::string& key,
                  const std::string& reason) const;
};

/// The settings that parallel.auto chooses where they are not given.
inline constexpr std::array<std::string_view, 10> kLayoutSettings = {
    "batch.micro_size",  "memory.recompute",
    "parallel.tp",       "parallel.pp",
    "parallel.cp",       "parallel.ep",
    "parallel.pipeline", "parallel.virtual_stages",
    "parallel.zero",     "parallel.shard_group"};

/// Returns those of kLayoutSettings that parallel.auto chooses for a run: all that are
/// not given, or that an earlier choice has given. A --set beside a file that holds the
/// earlier choice gives the setting.
std::vector<std::string> open_settings(const RunConfig& config);

/// The rules of a layout. Each rule has a number and a limit: the number is no multiple
/// of the limit, is above the limit, or does not fit the limit in another way.
enum class LayoutRule {
  // Here a setting does not fit another setting.
  PassTokens,     ///< tokens of a forward pass; the most there may be
  StepTokens,     ///< tokens of a step; the most there may be
  MicroBatches,   ///< batch.global_size; batch.micro_size
  VirtualStages,  ///< parallel.virtual_stages without an interleaved pipeline, or 1 with
  InterleavedStages,  ///< parallel.pp; 2, which an interleaved pipeline needs
  Chunks,             ///< data.seq_len; 2 * cp
  Positions,          ///< positions of a rank with parallel.sequence; tp
  Offload,            ///< memory.offload_activations without full recomputation
  // Here the number of ranks does not fit the settings.
  Replicas,      ///< ranks; pp * cp * tp
  ExpertGroups,  ///< dp * cp; ep
  Batch,         ///< batch.global_size; batch.micro_size * dp
  // Here a setting does not fit the model (layout/rules.h).
  MaxPositions,   ///< data.seq_len; the model's positions
  NoExperts,      ///< ep; 1, since the model has no experts
  Experts,        ///< experts of a layer; ep
  Pooled,         ///< experts.balance = "pooled" without one pass that sees all
  PooledExperts,  ///< fewest experts of a layer; those of another, with "pooled"
  ModelBytes,     ///< parameters, whose bytes cannot be counted
  StepBytes,      ///< batch.global_size, for which bytes cannot be counted
  // Here the number of ranks does not fit the model (layout/rules.h).
  ShardGroup,       ///< dp * cp; parallel.shard_group
  Machines,         ///< the fewest ranks of dp x cp on a machine; the most
  ExpertShards,     ///< ep; ranks of a shard group. Neither divides the other
  Layers,           ///< layers; stages, which are more
  PartitionLength,  ///< counts in parallel.partition; stages
  PartitionCount,   ///< a count in parallel.partition; layers
  PartitionSum,     ///< the sum of parallel.partition; layers
  QueryHeads,       ///< tp; query heads of a layer
  KeyHeads,         ///< fewest key heads of a layer; those of another. Both are below tp
  Narrow,           ///< rows or columns of a parameter; tp
  InterleavedBatches,  ///< micro batches; pp
  Gathered,            ///< bytes of memory.gathered_gb; the least that a stage needs
};

/// A rule that a layout breaks, with its numbers.
struct BrokenRule {
  LayoutRule rule;
  int64_t number = 0;
  int64_t limit = 0;
  int64_t stage = 0;  ///< used by Gathered only
  bool operator==(const BrokenRule&) const = default;
};

/// Returns the rules between settings that are broken, in the order of their messages.
std::vector<BrokenRule> broken_settings(const RunConfig& config);

/// Returns the rules between settings and `ranks`, at least 1, that are broken.
std::vector<BrokenRule> broken_by_ranks(const RunConfig& config, int64_t ranks);

/// The message about a broken rule, and the key that the message is about.
struct Refusal {
  /// The key that is wrong, "parallel.tp", or a part of the program, "pipeline", if the
  /// message names no place of the file.
  std::string of;
  std::string text;

  /// Throws ConfigError, at the place of the key.
  [[noreturn]] void fail(const RunConfig& config) const;
};
/// Makes a Refusal of the key `of`. The message is formatted as by fmt::format.
template <class... Args>
Refusal say(std::string of, fmt::format_string<Args...> message, Args&&... args) {
  return {std::move(of), fmt::format(message, std::forward<Args>(args)...)};
}

/// Returns the Refusal of a broken rule that needs no model.
Refusal refusal_of(const BrokenRule& broken, const RunConfig& config);

}  // namespace longhaul::config
