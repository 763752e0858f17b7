#include "longhaul/train/step/step_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhaul/base/error.h"
#include "longhaul/session/pairs.h"
#include "longhaul/session/router_loads.h"

namespace longhaul::train {
namespace {

bool has_targets(const LossTerm& term) { return term.over == LossTerm::Over::Targets; }
bool has_positions(const LossTerm& term) {
  return term.over == LossTerm::Over::Positions;
}

}  // namespace

StepLoss::StepLoss(const session::Session& session, const BatchTotals& totals)
    : terms_(session.model().description.losses) {
  for (size_t i = 0; i < terms_.size(); ++i) {
    weights_.push_back(
        session::router_weight(terms_[i], session.config(), session.model().network));
    const int64_t count = has_targets(terms_[i])     ? totals.targets.at(i)
                          : has_positions(terms_[i]) ? totals.positions * terms_[i].layers
                                                     : totals.targets.at(0);
    if (count == 0 && without_targets_.empty()) without_targets_ = terms_[i].name;
    denominators_.push_back(count == 0 ? std::numeric_limits<double>::quiet_NaN()
                                       : static_cast<double>(count));
  }
}

std::vector<double> StepLoss::scales(double factor) const {
  std::vector<double> scales;
  for (size_t i = 0; i < denominators_.size(); ++i) {
    // A term without weight has the scale 0 on every rank, even where `factor` is not a
    // number on one rank: routers decide by the scale whether the term is computed again.
    const bool none = std::isnan(denominators_[i]) || weights_[i] == 0.0;
    scales.push_back(none ? 0.0 : factor * weights_[i] / denominators_[i]);
  }
  return scales;
}

void StepLoss::add_up(const session::Session& session, std::vector<double> sums,
                      std::span<double> beside) {
  LH_ASSERT(sums.size() == terms_.size(), "{} sums of {} terms", sums.size(),
            terms_.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    // All ranks of a tp group have the sum of a term with targets; it counts once.
    if (!has_positions(terms_[i]) && session.mesh().index().tp != 0) sums[i] = 0.0;
  }
  sums.insert(sums.end(), beside.begin(), beside.end());
  session.world().all_reduce_wait(sums, comm::ReduceOp::Sum);
  std::ranges::copy(std::span(sums).subspan(terms_.size()), beside.begin());
  sums.resize(terms_.size());
  sums_ = std::move(sums);
}

double StepLoss::loss() const {
  double loss = 0.0;
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (has_targets(terms_[i])) loss += sums_.at(i) / denominators_[i];
  }
  return loss;
}

std::vector<std::pair<std::string, double>> StepLoss::terms() const {
  std::vector<std::pair<std::string, double>> means;
  const auto is_term = [](const LossTerm& term) {
    return term.over != LossTerm::Over::Figure;
  };
  if (std::ranges::count_if(terms_, is_term) == 1) return means;
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (is_term(terms_[i]))
      means.emplace_back(terms_[i].name, sums_.at(i) / denominators_[i]);
  }
  return means;
}

run::PairFigures StepLoss::pairs(const session::Session& session) const {
  return session::pair_figures(session, sums_, denominators_.at(0));
}

BatchTotals sum_over_replicas(const session::Session& session,
                              const data::StepBatch& batch) {
  std::vector<int64_t> sums = batch.num_targets;
  sums.push_back(batch.content_hash);
  const bool only_targets =
      std::ranges::none_of(session.model().description.losses, has_positions);
  if (!only_targets) sums.push_back(batch.num_real);
  session.mesh().dp().all_reduce_wait(sums, comm::ReduceOp::Sum);
  const size_t terms = batch.num_targets.size();
  BatchTotals totals;
  totals.content = sums[terms];
  if (!only_targets) totals.positions = sums[terms + 1];
  sums.resize(terms);
  totals.targets = std::move(sums);
  return totals;
}

}  // namespace longhaul::train
