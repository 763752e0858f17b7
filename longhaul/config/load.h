#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/config/run_config.h"

namespace longhaul {

struct LoadedConfig {
  RunConfig config;
  /// Settings without effect, and other things a person should see.
  std::vector<std::string> warnings;
};

/// Reads one TOML file, applies each "section.key=value" of `sets`, fills in defaults and
/// checks everything that needs neither the model nor the number of ranks. The value of
/// such an entry is TOML or a bare word, which is a string; without a value the key is
/// removed, as if the file did not have it. Throws ConfigError whose message starts with
/// file:line:column.
LoadedConfig load_run_config(const fs::path& file,
                             std::span<const std::string> sets = {});

/// Reads settings from a text as load_run_config() reads them from a file; `name` stands
/// for the file in messages. Also reads what to_toml wrote (a checkpoint's saved
/// configuration).
LoadedConfig parse_run_config(std::string_view text, std::string_view name,
                              std::span<const std::string> sets = {});

/// Returns the resolved settings as TOML, which parses back to the same settings.
std::string to_toml(const RunConfig& config);

/// Writes or reads the schedule's section alone, for a checkpoint that continues another
/// run's schedule. Reading throws ConfigError that names `name`.
std::string schedule_to_toml(const ScheduleSection& schedule);
ScheduleSection schedule_from_toml(std::string_view text, std::string_view name);

/// Returns the settings as a JSON object of sections, without keys that are not given.
std::string to_json_text(const RunConfig& config);

/// Returns the xxh3-128 of to_toml without its comments: equal settings have equal
/// hashes.
std::string config_hash(const RunConfig& config);

/// What a resume may do with a key: change it (Free), change it with a line in the log
/// (Logged), or only keep the checkpoint's value (Match).
enum class ResumeClass { Free, Logged, Match };

struct ConfigChange {
  std::string key;        ///< "optimizer.lr"
  std::string old_value;  ///< as TOML; "(not given)" for none
  std::string new_value;
  ResumeClass resume = ResumeClass::Free;
};

/// Returns the keys whose values differ, in the order of the reference.
std::vector<ConfigChange> diff_configs(const RunConfig& old_config,
                                       const RunConfig& new_config);

/// Returns the Logged changes if `now` may continue a run that was saved with `saved`.
/// Throws ConfigError that names every differing Match key with both values.
std::vector<ConfigChange> check_resume(const RunConfig& saved, const RunConfig& now);

/// Returns "section.key=value" for each of these settings, as `sets` of load_run_config
/// takes them.
std::vector<std::string> as_sets(const RunConfig& config,
                                 std::span<const std::string> keys);

/// Copies the values of these settings.
void copy_settings(const RunConfig& from, RunConfig& to,
                   std::span<const std::string> keys);

/// Returns what parallel.auto has chosen: "auto chose: tp 8, pp 4 ...; 12.3 s a step
/// predicted, on 64 ranks of p5.48xlarge". Returns an empty text if it has chosen
/// nothing.
std::string chosen_text(const RunConfig& config);

/// How a layout divides the global batch.
struct DerivedBatch {
  int64_t world = 1;
  int64_t dp = 1;            ///< world / (pp * cp * tp)
  int64_t accumulation = 1;  ///< microbatches per replica and step
  int64_t sequences_per_replica = 1;
  int64_t tokens_per_step = 0;
};

/// Computes the batch of a layout. Throws ConfigError with all the numbers if the world
/// or the batch does not divide.
DerivedBatch derive_batch(const RunConfig& config, int64_t world);

/// How far a run has come in its data.
struct DataSoFar {
  int64_t step = 0;
  double sequences = 0.0;  ///< in sequences of today's data, by Cursor::sequences_of()
};

/// Returns run.steps. If run.epochs is given instead, returns the steps done and the
/// whole steps of what is left of the data, floor((epochs * train_sequences -
/// past.sequences) / global_size). Throws ConfigError if that is no step or more than a
/// run may have.
int64_t total_steps(const RunConfig& config, int64_t train_sequences,
                    const DataSoFar& past = {});

/// Throws ConfigError, at the place of run.until, if that date is not behind `now`
/// (seconds since 1970).
void refuse_past_end(const RunConfig& config, double now);

/// Returns the last step that this run executes: min(stop_after, total).
int64_t last_step(const RunConfig& config, int64_t total);

}  // namespace longhaul
