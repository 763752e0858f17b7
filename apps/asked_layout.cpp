#include "apps/asked_layout.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/layout/group_use.h"

namespace longhaul::apps {
namespace {

constexpr layout::TrafficKind kKindsOfTraffic[] = {
    layout::TrafficKind::Pipeline,  layout::TrafficKind::Tensor,
    layout::TrafficKind::Context,   layout::TrafficKind::Experts,
    layout::TrafficKind::Gradients, layout::TrafficKind::Weights};
static_assert(std::size(kKindsOfTraffic) == layout::kTrafficKinds);

void print_state(const AskedLayout& asked) {
  fmt::print(
      "# of one rank of each stage\n#   {:>5}  {:>11}  {:>14}  {:>9}  {:>9}  {:>9}  "
      "{:>9}\n",
      "stage", "layers", "parameters", "weights", "gradients", "masters", "moments");
  for (const StageLine& s : asked.stages) {
    const std::string layers =
        asked.layout.chunks > 1 ? fmt::format("{} parts", asked.layout.chunks)
                                : fmt::format("{} to {}", s.first_layer, s.end_layer - 1);
    const layout::StateBytes& state = s.costs.state;
    fmt::print("#   {:>5}  {:>11}  {:>14}  {:>9}  {:>9}  {:>9}  {:>9}\n", s.stage, layers,
               grouped(s.costs.parameters), human_bytes(state.weights),
               human_bytes(state.gradients), human_bytes(state.masters),
               human_bytes(state.moments));
  }
}

/// Prints the memory that a step needs in addition to weights and optimizer states.
/// Gathered units are in this table, since they come and go like activations.
void print_passes(const AskedLayout& asked) {
  fmt::print(
      "# in a step\n#   {:>5}  {:>11}  {:>14}  {:>9}  {:>9}  {:>11}  {:>9}  {:>13}\n",
      "stage", "activations", "forwards open", "logits", "work", "whole units", "NCCL",
      "all, at most");
  for (const StageLine& s : asked.stages) {
    const layout::ActivationBytes& passes = s.costs.activations;
    const int64_t units = s.costs.whole.weights + s.costs.whole.gradients;
    fmt::print("#   {:>5}  {:>11}  {:>14}  {:>9}  {:>9}  {:>11}  {:>9}  {:>13}\n",
               s.stage, human_bytes(passes.in_flight.total()), passes.forwards,
               human_bytes(passes.logits), human_bytes(passes.work), human_bytes(units),
               human_bytes(s.nccl_bytes), human_bytes(s.all_bytes()));
  }
  if (asked.stages.front().nccl_bytes > 0) {
    fmt::print("# NCCL's buffers are reckoned, not measured\n");
  }
}

void print_traffic(const AskedLayout& asked) {
  fmt::print("# sent in a step\n#   {:>5}", "stage");
  for (const layout::TrafficKind kind : kKindsOfTraffic) {
    fmt::print("  {:>9}", layout::traffic_name(kind));
  }
  fmt::print("\n");
  for (const StageLine& s : asked.stages) {
    fmt::print("#   {:>5}", s.stage);
    for (const layout::TrafficKind kind : kKindsOfTraffic) {
      fmt::print("  {:>9}", human_bytes(s.costs.traffic.bytes(kind)));
    }
    fmt::print("\n");
  }
}

OrderedJson activations_json(const layout::ActivationBytes& passes) {
  OrderedJson out;
  for (size_t i = 0; i < kKeptKinds; ++i) {
    const auto kind = static_cast<KeptKind>(i);
    out[kept_name(kind)] = passes.in_flight[kind];
  }
  out["total"] = passes.in_flight.total();
  return out;
}

OrderedJson traffic_json(const layout::Traffic& traffic) {
  OrderedJson out = OrderedJson::array();
  for (const layout::TrafficLine& line : traffic.lines()) {
    out.push_back({{"kind", layout::traffic_name(line.kind)},
                   {"group", layout::group_name(line.group)},
                   {"operation", layout::verb_name(line.verb)},
                   {"calls", line.calls},
                   {"bytes", line.bytes}});
  }
  return out;
}

}  // namespace

AskedLayout ask_layout(const RunConfig& config, const ModelDescription& model,
                       int64_t ranks, const layout::Placement& placement,
                       const std::function<bool(const std::string&)>& frozen,
                       std::string_view device) {
  layout::LayoutDescription placed =
      layout::describe_layout(config, model, ranks, placement);
  std::vector<layout::RankCosts> costs =
      layout::stage_costs(config, model, placed, frozen, device);
  AskedLayout asked{std::move(placed),
                    std::move(costs),
                    {},
                    layout::checkpoint_bytes(model, config.precision, frozen),
                    config.checkpoint.keep};
  const layout::LayoutDescription& layout = asked.layout;
  // "auto" counts as a CPU here, as for activations. A profile of a machine has its name.
  const bool is_gpu = device == "cuda" || device.starts_with("NVIDIA ");
  for (int pp = 0; pp < layout.shape.pp; ++pp) {
    const int rank = layout::rank_at(layout.shape, {.pp = pp});
    asked.stages.push_back(
        {pp, layout.stage(rank, 0).first_layer,
         layout.stage(rank, layout.chunks - 1).end_layer,
         asked.costs[static_cast<size_t>(pp)],
         is_gpu ? layout::reckoned_nccl_bytes(layout, config, rank) : 0});
  }
  return asked;
}

void print_layout(const AskedLayout& asked) {
  fmt::print("# layout: {}{}\n", asked.layout.describe(),
             asked.layout.shards > 1 ? fmt::format(", shard groups of {}",
                                                   counted(asked.layout.shards, "rank"))
                                     : "");
  print_state(asked);
  print_passes(asked);
  print_traffic(asked);
  fmt::print(
      "# a checkpoint: {}; checkpoint.keep = {}: {}\n",
      human_bytes(asked.checkpoint_bytes), asked.kept_checkpoints,
      asked.kept_checkpoints == 0
          ? "all of them stay"
          : fmt::format("{}, and one more while it is saved",
                        human_bytes(asked.checkpoint_bytes * asked.kept_checkpoints)));
}

OrderedJson layout_json(const AskedLayout& asked) {
  const layout::LayoutDescription& layout = asked.layout;
  OrderedJson out;
  out["pp"] = layout.shape.pp;
  out["dp"] = layout.shape.dp;
  out["cp"] = layout.shape.cp;
  out["tp"] = layout.shape.tp;
  out["ep"] = layout.ep;
  out["zero"] = layout.zero;
  out["shard_group"] = layout.shards;
  out["checkpoint_bytes"] = asked.checkpoint_bytes;
  out["stages"] = OrderedJson::array();
  for (const StageSpec& stage : layout.stages) {
    out["stages"].push_back(
        {{"first_layer", stage.first_layer}, {"end_layer", stage.end_layer}});
  }
  out["ranks"] = OrderedJson::array();
  for (const StageLine& s : asked.stages) {
    const layout::RankCosts& costs = s.costs;
    out["ranks"].push_back({{"pp", s.stage},
                            {"parameters", costs.parameters},
                            {"weight_bytes", costs.state.weights},
                            {"gradient_bytes", costs.state.gradients},
                            {"master_bytes", costs.state.masters},
                            {"moment_bytes", costs.state.moments},
                            {"whole_weight_bytes", costs.whole.weights},
                            {"whole_gradient_bytes", costs.whole.gradients},
                            {"activation_bytes", activations_json(costs.activations)},
                            {"open_forwards", costs.activations.forwards},
                            {"logits_bytes", costs.activations.logits},
                            {"work_bytes", costs.activations.work},
                            {"token_bytes", costs.activations.tokens},
                            {"nccl_bytes", s.nccl_bytes},
                            {"all_bytes", s.all_bytes()},
                            {"sent", traffic_json(costs.traffic)}});
  }
  return out;
}

}  // namespace longhaul::apps
