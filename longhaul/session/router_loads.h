#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/nn/forward_context.h"
#include "longhaul/session/session.h"

namespace longhaul::session {

/// What the routers of experts did with the tokens of a whole step, over all ranks and
/// without padding.
struct ExpertLoads {
  /// Tokens that each expert got, by layer; empty for a layer without experts, and for a
  /// step of a model without any.
  std::vector<std::vector<int64_t>> counts;
  std::vector<double> entropy;  ///< mean entropy of the router's probabilities, by layer

  bool empty() const { return counts.empty(); }
  /// Returns the number of experts that a layer uses in effect: the exponential of the
  /// entropy of the experts' shares.
  double effective(size_t layer) const;
  /// Returns the largest share of the layer's choices that one expert has got, as a
  /// multiple of an even share.
  double busiest(size_t layer) const;
};

/// Returns the kind of balance that the settings and the model ask for. The result is
/// never BalanceKind::Model.
BalanceKind balance_of(const RunConfig& config, const families::Network& network);
/// Returns the weight of a term of the loss, which is 0 where a router's term has no
/// gradient.
double router_weight(const LossTerm& term, const RunConfig& config,
                     const families::Network& network);
/// Sets what the routers of a session's model need in a forward pass: their terms of the
/// loss, the kind of balance, their number, and even shares of the experts.
void prepare_router(const Session& session, nn::RouterContext& router);

/// Adds up over all ranks what StageRunner::device_router_loads has counted of a step.
/// `positions` is the number of positions of the step that are not padding. Collective.
ExpertLoads sum_router_loads(const Session& session, std::vector<double> mine,
                             int64_t positions);
/// Returns counts whose text is at least as long as that of any step of `tokens` tokens:
/// each expert of each layer got all tokens.
std::vector<std::vector<int64_t>> longest_counts(const families::Network& network,
                                                 int64_t tokens);
/// Returns the share of tokens that each expert of a layer has got, where each token went
/// to `top_k` of them: the shares add up to `top_k`. Where no expert got any token, all
/// shares are even.
std::vector<double> shares_of(const std::vector<int64_t>& counts, int64_t top_k);
/// Returns the shares that shares_of() makes of the counts of all layers, fp32 [layers,
/// E], for RouterContext::shares. Without counts every expert has an even share.
at::Tensor expert_shares(const Session& session,
                         const std::vector<std::vector<int64_t>>& counts);

}  // namespace longhaul::session
