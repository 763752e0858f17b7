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

/// Returns a warning for each file or directory that a run trains on twice, and for each
/// validation set that contains a file which the run also trains on. Patterns, spellings
/// and directories that lead to the same one count as one. A pattern that matches nothing
/// on this machine is ignored.
std::vector<std::string> places_met_twice(const RunConfig& config);

/// Adds the warnings of places_met_twice to those of the configuration.
void warn_of_places(LoadedConfig& loaded);

/// Throws ConfigError if a setting is a pattern of addresses that training cannot use: a
/// pattern may only name files of token ids. The object store is not asked.
void refuse_patterns(const RunConfig& config);

/// Loads a run file, and appends the warnings of places_met_twice to the others. Also
/// throws what refuse_patterns() throws.
LoadedConfig load_with_places(const fs::path& file, std::span<const std::string> sets);

}  // namespace longhaul::apps
