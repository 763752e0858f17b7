#pragma once

#include <string>
#include <vector>

#include "longhaul/config/load.h"
#include "longhaul/families/model_config.h"

namespace longhaul::apps {

/// Returns a line for each file or directory that a run reads and this machine does not
/// have: "data.train: data/mine is not on this machine".
std::vector<std::string> missing_inputs(const RunConfig& config);

/// Returns a line for each address that a run reads: "s3://b/model is an address, looked
/// at by train". No store is asked.
std::vector<std::string> unlooked_addresses(const RunConfig& config);

/// Throws InputError where the weights that a run begins with are here and are not those
/// of its model (checkpoint/hf/model_check.h). A run that goes on from a checkpoint is
/// not looked at.
void check_first_weights(const RunConfig& config, const ModelConfig& model);

/// Refuses what can be refused before any rank is started. Among the inputs these are
/// missing ones, patterns of addresses where training reads none, a model's config that
/// cannot be used, and weights that are damaged or of another model. It also refuses
/// settings that do not fit the model, ranks that do not fit layout and batch, and a
/// directory of the run that is a link to nothing or holds another program's checkpoint.
/// Throws InputError or ConfigError for the first problem.
void check_before_start(const RunConfig& config, int ranks);

}  // namespace longhaul::apps
