#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/train/history/history.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Returns the last step of a run that has come as far as `history` says: run.steps, or
/// the step at which run.epochs end.
int64_t total_steps(const TrainingSession& session, const History& history);

/// Throws InputError where the run's first start would begin beside the checkpoint of
/// another program, before data or weights are read (checkpoint/foreign_forms.h).
/// load_state() checks again, once it knows from which checkpoint the run goes on.
/// Collective.
void refuse_foreign_start(const RunConfig& config, const RunStart& start,
                          comm::Communicator& world);

/// Returns parallel.partition as this start takes it (checkpoint/read/saved_partition.h).
/// Where the directory of checkpoints lacks the checkpoint from which the start goes on,
/// brings it from the mirror before that. Rank 0 reads the checkpoint. Must be called
/// before load_state(). Collective.
std::vector<int64_t> find_partition(const RunConfig& config,
                                    const ModelDescription& model,
                                    comm::Communicator& world, RunStart& start,
                                    RunLog& run);

/// Fills weights and optimizer from the checkpoint that [checkpoint] resume chooses, else
/// from [init] weights, else from the seed, and logs which. A checkpoint of this run
/// takes precedence over [init]. Returns how far the run has come. Collective.
History load_state(TrainingSession& session, RunStart& start, RunLog& run);

/// Goes back from `now`, whose newest step was bad. Fills weights and optimizer from the
/// newest checkpoint before the last `steps` steps, or anew as the run began, and returns
/// how far that state has come. The data leaves out the batches of the last `steps`
/// steps. So the steps that follow are the same whichever checkpoint is taken. Newer
/// checkpoints are set aside. No save may be under way. Collective.
History roll_back(TrainingSession& session, RunStart& start, RunLog& run,
                  const History& now, int64_t steps);

}  // namespace longhaul::train
