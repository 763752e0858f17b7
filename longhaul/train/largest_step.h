#pragma once

#include "longhaul/data/order/loader.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Gives a causal batch as much work as a batch of its shape can have: each sequence is
/// one document, and each of its positions has a target. Other batches stay as they are:
/// which of their positions have targets is not the text's choice.
void fill_up(const TrainingSession& session, data::StepBatch& batch);

/// Does an optimizer step with this batch: passes, norm, update and the exchange of
/// weights, as train_step() does them. Afterwards masters, moments, weights and the
/// optimizer's counts are those of a run that has done the step, and whoever wants them
/// back has to restore them. Nothing else is changed. Collective.
void try_step(TrainingSession& session, const History& history, data::StepBatch& batch);

}  // namespace longhaul::train
