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

/// Reads one TOML file, applies each "section.key=value" of `sets` (the value is TOML;
/// a bare word is taken as a string; with nothing behind the "=" the key is taken out, as
/// if the file did not have it), fills in defaults and checks everything that needs
/// neither the model nor the world. Throws ConfigError whose message starts with
/// file:line:column.
LoadedConfig load_run_config(const fs::path& file,
                             std::span<const std::string> sets = {});

/// The same from text; `name` stands for the file in messages. Also reads back what
/// to_toml wrote (a checkpoint's saved configuration).
LoadedConfig parse_run_config(std::string_view text, std::string_view name,
                              std::span<const std::string> sets = {});

/// The resolved settings as TOML that parses back to the same settings.
std::string to_toml(const RunConfig& config);

/// The section alone, for a checkpoint that goes on with another run's schedule, and
/// back. ConfigError names `name`.
std::string schedule_to_toml(const ScheduleSection& schedule);
ScheduleSection schedule_from_toml(std::string_view text, std::string_view name);

/// The same settings as a JSON object of sections; keys that are not given are absent.
std::string to_json_text(const RunConfig& config);

/// xxh3-128 of to_toml without its comments: equal settings, equal hash.
std::string config_hash(const RunConfig& config);

/// What a resume may do with a key: change it, change it with a line in the log, or
/// nothing (the checkpoint's value must be kept).
enum class ResumeClass { Free, Logged, Match };

struct ConfigChange {
  std::string key;        ///< "optimizer.lr"
  std::string old_value;  ///< as TOML; "(not given)" for none
  std::string new_value;
  ResumeClass resume = ResumeClass::Free;
};

/// The keys whose values differ, in the order of the reference.
std::vector<ConfigChange> diff_configs(const RunConfig& old_config,
                                       const RunConfig& new_config);

/// Checks that `now` may continue a run that was saved with `saved`: ConfigError names
/// every `match` key that differs with both values. Returns the `logged` changes.
std::vector<ConfigChange> check_resume(const RunConfig& saved, const RunConfig& now);

/// The batch arithmetic of one layout.
struct DerivedBatch {
  int64_t world = 1;
  int64_t dp = 1;            ///< world / (pp * cp * tp)
  int64_t accumulation = 1;  ///< microbatches per replica and step
  int64_t sequences_per_replica = 1;
  int64_t tokens_per_step = 0;
};

/// ConfigError with all the numbers when the world or the batch does not divide.
DerivedBatch derive_batch(const RunConfig& config, int64_t world);

/// run.steps, or run.epochs over so many training sequences: whole steps only
/// (floor(epochs * sequences / global_size)); ConfigError when that is none.
int64_t total_steps(const RunConfig& config, int64_t train_sequences);

/// The last step this run executes: min(stop_after, total).
int64_t last_step(const RunConfig& config, int64_t total);

}  // namespace longhaul
