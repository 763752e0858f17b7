#pragma once

#include "longhaul/run/step_record.h"
#include "longhaul/session/session.h"

namespace longhaul::session {

/// Gives a model the terms of the loss that [preference] asks for: kPreference in the
/// place of the next token's, for orpo also kChosenToken, and behind all terms the
/// figures of nn::loss_head. Does nothing without preference.loss. Throws ConfigError for
/// a model that does not predict the next token.
void train_on_pairs(const RunConfig& config, ModelConfig& model);

/// Sets what a forward pass needs for the loss of pairs, except what its layout sets.
void prepare_pairs(const Session& session, nn::PairContext& pairs);

/// Returns the figures of the pairs over which `sums` are summed: a value for each term
/// of the loss and each figure, by their numbers. Without [preference] there are none.
run::PairFigures pair_figures(const Session& session, const std::vector<double>& sums,
                              double pairs);

}  // namespace longhaul::session
