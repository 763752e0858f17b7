#include "longhaul/session/router_loads.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "longhaul/base/error.h"

namespace longhaul::session {

double ExpertLoads::effective(size_t layer) const {
  const std::vector<int64_t>& of = counts.at(layer);
  const auto all = static_cast<double>(std::accumulate(of.begin(), of.end(), int64_t{0}));
  double of_shares = 0.0;
  for (const int64_t count : of) {
    const double share = static_cast<double>(count) / all;
    if (count > 0) of_shares -= share * std::log(share);
  }
  return std::exp(of_shares);
}

double ExpertLoads::busiest(size_t layer) const {
  const std::vector<int64_t>& of = counts.at(layer);
  const auto all = static_cast<double>(std::accumulate(of.begin(), of.end(), int64_t{0}));
  return static_cast<double>(std::ranges::max(of)) * static_cast<double>(of.size()) / all;
}

BalanceKind balance_of(const RunConfig& config, const families::Network& network) {
  if (config.experts.balance != BalanceKind::Model) return config.experts.balance;
  return network.asks_for_balance ? BalanceKind::Sequence : BalanceKind::Off;
}

double router_weight(const LossTerm& term, const RunConfig& config,
                     const families::Network& network) {
  if (term.name == kRouterZ) return config.experts.z_loss;
  if (term.name != kRouterBalance) return 1.0;
  if (balance_of(config, network) == BalanceKind::Off) return 0.0;
  return config.experts.balance_weight.value_or(network.balance);
}

void prepare_router(const Session& session, nn::RouterContext& router) {
  const ModelDescription& model = session.model().description;
  const auto number = [&](std::string_view name) {
    return static_cast<size_t>(std::ranges::find(model.losses, name, &LossTerm::name) -
                               model.losses.begin());
  };
  router.balance_term = number(kRouterBalance);
  router.z_term = number(kRouterZ);
  if (router.z_term == model.losses.size()) return;
  router.balance = balance_of(session.config(), session.model().network);
  router.routers = model.losses[router.z_term].layers;
  router.shares = expert_shares(session, {});
}

ExpertLoads sum_router_loads(const Session& session, std::vector<double> mine,
                             int64_t positions) {
  const int64_t most = families::most_experts(session.model().network);
  if (most == 0) return {};
  // The sum leaves out the tp group, all ranks of which have counted the same tokens.
  for (comm::Communicator* group : {&session.mesh().data(), &session.mesh().pp()}) {
    group->all_reduce_wait({mine.data(), std::ssize(mine), format::DType::F64},
                           comm::ReduceOp::Sum);
  }
  ExpertLoads loads;
  const auto& blocks = session.model().network.blocks;
  const auto each = static_cast<size_t>(most);
  const auto tokens = static_cast<double>(positions);
  for (size_t layer = 0; layer < blocks.size(); ++layer) {
    loads.counts.emplace_back();
    loads.entropy.push_back(mine.at(blocks.size() * each + layer) / tokens);
    const families::Experts* experts = families::experts_of(blocks[layer]);
    if (experts == nullptr) continue;
    for (size_t e = 0; e < experts->experts.size(); ++e) {
      loads.counts.back().push_back(std::llround(mine.at(layer * each + e)));
    }
  }
  return loads;
}

std::vector<std::vector<int64_t>> longest_counts(const families::Network& network,
                                                 int64_t tokens) {
  if (!families::has_experts(network)) return {};
  std::vector<std::vector<int64_t>> counts;
  for (const families::Block& block : network.blocks) {
    const families::Experts* experts = families::experts_of(block);
    counts.emplace_back(experts == nullptr ? 0 : experts->experts.size(), tokens);
  }
  return counts;
}

std::vector<double> shares_of(const std::vector<int64_t>& counts, int64_t top_k) {
  const auto chosen =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const auto k = static_cast<double>(top_k);
  std::vector<double> shares;
  for (const int64_t count : counts) {
    shares.push_back(chosen > 0.0 ? static_cast<double>(count) / (chosen / k)
                                  : k / static_cast<double>(counts.size()));
  }
  return shares;
}

at::Tensor expert_shares(const Session& session,
                         const std::vector<std::vector<int64_t>>& loads) {
  const auto& blocks = session.model().network.blocks;
  const int64_t most = families::most_experts(session.model().network);
  if (most == 0) return {};
  const auto layers = std::ssize(blocks);
  LH_CHECK(std::ssize(loads) <= layers, "checkpoint",
           "state.json has the loads of experts of {} layers, the model has {}",
           loads.size(), layers);
  // Nobody waits for the copy: the allocator of pinned memory keeps the memory until the
  // copy has ended. A copy from pageable memory would wait for the work that the device
  // has not ended yet.
  at::Tensor shares =
      at::zeros({layers, most},
                at::TensorOptions(at::kFloat).pinned_memory(!session.device().is_cpu()));
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto number = static_cast<size_t>(layer);
    const families::Experts* experts = families::experts_of(blocks[number]);
    const int64_t each = experts == nullptr ? 0 : experts->router.out;
    std::vector<int64_t> counts(static_cast<size_t>(each));
    if (number < loads.size() && !loads[number].empty()) counts = loads[number];
    LH_CHECK(std::ssize(counts) == each, "checkpoint",
             "state.json has the loads of {} experts, the model has {}", counts.size(),
             each);
    auto* row = shares.mutable_data_ptr<float>() + layer * most;
    for (const double share : shares_of(counts, each == 0 ? 1 : experts->top_k)) {
      *row++ = static_cast<float>(share);
    }
  }
  return shares.to(session.device(), /*non_blocking=*/true);
}

}  // namespace longhaul::session
