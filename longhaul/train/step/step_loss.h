#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// The loss of a step: each term's sum over its own denominator in the global batch.
class StepLoss {
 public:
  /// `targets`: of each term that has them, in the global batch (sum_over_replicas).
  StepLoss(const Session& session, const std::vector<int64_t>& targets);

  /// The first term of which the global batch has no target at all, and so no loss;
  /// empty: each has some.
  const std::string& without_targets() const { return without_targets_; }

  /// For StageRunner::begin_step; `factor` 1 unless gradients are to be wrong. 0 for a
  /// term without targets.
  std::vector<double> scales(double factor = 1.0) const;
  /// From what this rank has summed, the same on every rank. Collective over the world.
  void add_up(const Session& session, std::vector<double> sums);

  /// Mean over the terms' denominators; those with targets added up: NaN where one has
  /// none. Valid after add_up.
  double loss() const;
  /// By name, where there are several terms; else empty.
  std::vector<std::pair<std::string, double>> terms() const;

 private:
  std::vector<LossTerm> terms_;
  std::vector<double> denominators_;  ///< NaN: no targets
  std::string without_targets_;
  std::vector<double> sums_;
};

/// The batch's targets by term over all replicas, and its content hash.
struct BatchTotals {
  std::vector<int64_t> targets;
  int64_t content = 0;
};
/// Of this rank's part of the step's batch. Collective over dp.
BatchTotals sum_over_replicas(const Session& session, const data::StepBatch& batch);

/// What the ranks of a replica have summed, each its positions and stages: the same on
/// all of them. Collective over cp and pp.
std::vector<double> sum_of_replica(const Session& session, std::vector<double> sums);

}  // namespace longhaul::train
