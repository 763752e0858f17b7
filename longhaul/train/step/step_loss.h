#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/data/order/loader.h"
#include "longhaul/run/step_record.h"
#include "longhaul/session/session.h"

namespace longhaul::train {

/// What a step's batch has, over all replicas.
struct BatchTotals {
  std::vector<int64_t> targets;  ///< by term of the loss
  /// Positions that are not padding; 0 for a model without terms over positions.
  int64_t positions = 0;
  int64_t content = 0;  ///< the content hash
};
/// Adds up the totals of all ranks' parts of the step's batch. Collective over dp.
BatchTotals sum_over_replicas(const session::Session& session,
                              const data::StepBatch& batch);

/// The loss of a step: each term's sum divided by the term's own denominator in the
/// global batch.
class StepLoss {
 public:
  /// `totals` are those of the global batch (sum_over_replicas).
  StepLoss(const session::Session& session, const BatchTotals& totals);

  /// Returns the first term that has no target in the global batch, so that the loss is
  /// undefined; empty where every term has some.
  const std::string& without_targets() const { return without_targets_; }

  /// Returns the scales for StageRunner::begin_step; 0 for a term without targets or
  /// weight. `factor` is 1, unless gradients are to be wrong on purpose.
  std::vector<double> scales(double factor = 1.0) const;
  /// Adds up the loss sums of all ranks and, by the same message, the numbers of `beside`
  /// (the squares of the gradient norm) in place. The result is the same on every rank.
  /// Collective over the world.
  void add_up(const session::Session& session, std::vector<double> sums,
              std::span<double> beside = {});

  /// Returns the sum of the means of all terms that have targets; NaN where the global
  /// batch has no target for such a term. Must be called after add_up().
  double loss() const;
  /// Returns the mean of each term by name where there are several terms; else nothing.
  std::vector<std::pair<std::string, double>> terms() const;
  /// Returns the figures of the step's pairs. Must be called after add_up().
  run::PairFigures pairs(const session::Session& session) const;

 private:
  std::vector<LossTerm> terms_;
  std::vector<double> denominators_;  ///< NaN where there is nothing to divide by
  std::vector<double> weights_;       ///< of the terms in the loss
  std::string without_targets_;
  std::vector<double> sums_;
};

}  // namespace longhaul::train
