#pragma once

#include <vector>

#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/system/log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Returns the model's side files (format/side_files.h), which checkpoints and exports
/// carry: the files of [init]'s directory, then those that only model.config's directory
/// has. A tokenizer is taken whole from the first of these directories that has one, else
/// from the first training store that has one. config.json is written anew, in the run's
/// dtype. Tells the log which files stay behind.
std::vector<checkpoint::CarriedFile> files_of_run(const TrainingSession& session,
                                                  system::Logger& log);

}  // namespace longhaul::train
