#pragma once

#include <string>

#include "longhaul/base/json.h"

// A checkpoint's state.json holds the version and the settings that these functions read;
// train/history writes the file.

namespace longhaul::run {

/// Version 2 deals mixtures of data in another order than version 1, and counts sources.
inline constexpr int kStateVersion = 2;
/// Version 3 has counts of updates by parameter. It is written only if some parameters
/// have counts of their own, since a program that does not know them would take wrong
/// counts.
inline constexpr int kCountsVersion = 3;

/// Throws ConfigError if another version of this program wrote the state: then nothing is
/// wrong with the files. Throws Json::exception for a state without a version.
void check_state_version(const Json& state);

/// Returns the settings of the run, as TOML; empty if the checkpoint was imported. Throws
/// ConfigError if another version of this program wrote the state, and InputError for a
/// state without settings.
std::string saved_settings(const Json& state);

}  // namespace longhaul::run
