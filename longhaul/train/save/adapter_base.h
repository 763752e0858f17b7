#pragma once

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

// The base of an adapter is in no checkpoint: every start reads it from init.weights.

/// Opens init.weights with the names of the model's parameters. With an adapter these
/// have the values of init.adapter, or else their first values. Throws InputError for
/// files that are not the model's. Collective.
checkpoint::SharedSource open_first_weights(const TrainingSession& session);

/// Fills the parameters of the base from init.weights, and gives the session the base's
/// hash. Does nothing without an adapter. Collective.
void load_base(TrainingSession& session, RunLog& run);

/// Throws ConfigError if the state, which lies in `from`, was trained beside another base
/// than this start has.
void check_base(const TrainingSession& session, const History& history,
                const fs::path& from);

}  // namespace longhaul::train
