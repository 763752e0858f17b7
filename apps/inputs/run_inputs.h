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
/// at by train". The object store is not asked.
std::vector<std::string> unlooked_addresses(const RunConfig& config);

/// Throws InputError if the weights that a run begins with are on this machine and are
/// not those of its model (checkpoint/hf/model_check.h). Does nothing for a run that
/// continues from a checkpoint.
void check_first_weights(const RunConfig& config, const ModelConfig& model);

/// Throws InputError if a file of validation.tasks that is on this machine is no file of
/// samples (data/tasks/task_file.h).
void check_tasks(const RunConfig& config);

/// Refuses what can be refused before any rank is started. Among the inputs these are
/// missing ones, patterns of addresses where training reads none, a model's config that
/// cannot be used, weights that are damaged or of another model, and wrong tasks. It also
/// refuses settings that do not fit the model, and numbers of ranks that do not fit
/// layout and batch. The directory of the run may not be a dangling link, nor hold
/// another program's checkpoint. Throws InputError or ConfigError for the first problem.
void check_before_start(const RunConfig& config, int ranks);

}  // namespace longhaul::apps
