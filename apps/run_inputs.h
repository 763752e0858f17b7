#pragma once

#include <string>
#include <vector>

#include "longhaul/config/load.h"

namespace longhaul::apps {

/// A line for each file or directory that a run reads and this machine does not have:
/// "data.train: data/mine is not on this machine".
std::vector<std::string> missing_inputs(const RunConfig& config);

/// What can be refused before any rank is started: missing inputs, a model's config that
/// cannot be used, settings that do not fit it, ranks that do not fit the layout and the
/// batch. InputError and ConfigError, the first that is found.
void check_before_start(const RunConfig& config, int ranks);

}  // namespace longhaul::apps
