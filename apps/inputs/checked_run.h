#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/asked_layout.h"
#include "longhaul/config/load.h"
#include "longhaul/families/model_config.h"

namespace longhaul::apps {

/// A run file that has passed the checks of a start which need no ranks.
struct CheckedRun {
  LoadedConfig loaded;  ///< with the warnings of all checks
  /// The warnings among them that name inputs which are not on this machine, or which no
  /// store was asked for.
  std::vector<std::string> elsewhere;
  std::optional<ModelConfig> model;  ///< absent where model.config is not here
};

/// Loads a run file and checks what this machine can tell about the run, in the order of
/// a start. `ranks` is 0 where the number is not known. A file that is only elsewhere is
/// a warning here and an error when the run starts. Throws InputError or ConfigError for
/// what a start would refuse.
CheckedRun check_run(const std::string& file, std::span<const std::string> sets,
                     int64_t ranks);

/// Returns the names of the parameters that [optimizer] groups freeze.
std::set<std::string> frozen_parameters(const RunConfig& config,
                                        const ModelDescription& model);

/// Computes the layout that a start on `ranks` ranks takes, with `ranks_per_node`
/// neighbouring ranks on each node; 0: all on one. Stages have the layers that the run's
/// checkpoint says (checkpoint/read/saved_partition.h). `device` is named as in
/// run.device or in a profile. Throws ConfigError like describe_layout.
AskedLayout describe_run(const RunConfig& config, const ModelDescription& model,
                         int64_t ranks, int64_t ranks_per_node, std::string_view device);

}  // namespace longhaul::apps
