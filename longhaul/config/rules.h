#pragma once

#include <string>
#include <vector>

#include "longhaul/config/field.h"
#include "longhaul/config/run_config.h"

namespace longhaul::config {

/// Sets the settings that depend on others: forms of the schedule, and LAMB's defaults.
void resolve(RunConfig& config);
void resolve_optimizer(RunConfig& config);

/// A larger number of steps is a typing error.
inline constexpr int64_t kMaxSteps = 1'000'000'000'000;

/// Checks every rule between settings that needs neither the model nor the world, and
/// returns warnings. Throws ConfigError at the place of the setting.
std::vector<std::string> check_rules(const RunConfig& config);

/// Checks the rules of [data].
void check_data(const RunConfig& config, std::vector<std::string>& warnings);

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

}  // namespace longhaul::config
