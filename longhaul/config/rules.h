#pragma once

#include <string>
#include <vector>

#include "longhaul/config/run_config.h"

namespace longhaul::config {

/// Gives the settings that depend on others their values: schedule forms, and what LAMB
/// takes where nothing is given.
void resolve(RunConfig& config);
void resolve_optimizer(RunConfig& config);

/// More steps than these are a typing error.
inline constexpr int64_t kMaxSteps = 1'000'000'000'000;

/// Every rule between settings that needs neither the model nor the world. ConfigError
/// at the place of the setting concerned; returns warnings.
std::vector<std::string> check_rules(const RunConfig& config);

/// The part of check_rules about [data].
void check_data(const RunConfig& config, std::vector<std::string>& warnings);

/// The part of check_rules about the learning rate.
void check_schedule(const RunConfig& config, std::vector<std::string>& warnings);

/// The part of check_rules about bad steps and faults made on purpose.
void check_bad_steps(const RunConfig& config, std::vector<std::string>& warnings);

/// The rules of the schedule that need the run's length in steps. ConfigError.
void check_schedule_length(const RunConfig& config, int64_t steps);

/// The run's sequences and tokens are numbers of 64 bits. ConfigError names `key`, which
/// the steps come from.
void check_run_length(const RunConfig& config, int64_t steps, const std::string& key);

/// Where a key was set ("run.toml:3:9"), or nothing.
std::string origin(const RunConfig& config, const std::string& key);
bool given(const RunConfig& config, const std::string& key);

/// ConfigError at the place of a key.
[[noreturn]] void fail_key(const RunConfig& config, const std::string& key,
                           const std::string& message);

/// Adds a warning when a key was given though nothing reads it.
void warn_unused(const RunConfig& config, const std::string& key,
                 const std::string& reason, std::vector<std::string>& warnings);

}  // namespace longhaul::config
