#pragma once

#include <span>
#include <string>
#include <vector>

#include "longhaul/config/load.h"

namespace longhaul::apps {

/// Returns one path for every spelling of a file or directory: absolute, without links,
/// and without a last slash. Nothing need exist there. An address of an object gets one
/// spelling, too.
fs::path place_of(const fs::path& path);

/// Returns a warning for each place that a run trains on twice, and for each set of
/// validation of which a file is trained on. Patterns, spellings and directories that
/// lead to the same place are told as one. A pattern that matches nothing here leads
/// nowhere.
std::vector<std::string> places_met_twice(const RunConfig& config);

/// Adds the warnings of places_met_twice to those of the configuration.
void warn_of_places(LoadedConfig& loaded);

/// Throws ConfigError where a setting is a pattern of addresses that no start takes:
/// only files of ready ids are found by a pattern. No store is asked.
void refuse_patterns(const RunConfig& config);

/// Loads a run file, with the warnings of places_met_twice behind the others. Also throws
/// what refuse_patterns() throws.
LoadedConfig load_with_places(const fs::path& file, std::span<const std::string> sets);

}  // namespace longhaul::apps
