#pragma once

#include <functional>

#include "longhaul/infer/evaluate.h"
#include "longhaul/session/stage_runner.h"
#include "longhaul/train/log/run_log.h"

namespace longhaul::train {

/// Returns how the settings have a validation set evaluated.
infer::EvaluateOptions evaluate_options(const RunConfig& config);

/// Validates the model as it stands: evaluates every validation set, and tells the log
/// and the history its loss; then measures every task, and tells the log its figures.
/// `before_batches` is called before each pass over micro batches; what it throws ends
/// the validation. Collective.
void evaluate_sets(const TrainingSession& session, session::StageRunner& runner,
                   RunLog& run, History& history,
                   const std::function<void()>& before_batches);

/// Returns whether rank 0 sees that the loss of a validation set has risen above the
/// set's stop_above, and tells the log. Collective.
bool has_risen(const TrainingSession& session, RunLog& run, const History& history);

}  // namespace longhaul::train
