#include "longhaul/plan/bounds.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "longhaul/plan/device_memory.h"

namespace longhaul::plan {
namespace {

using config::BrokenRule;
using config::LayoutRule;
using layout::GroupKind;
using layout::Verb;

/// Returns whether a rule depends on the mesh and on nothing else that a search varies.
/// Such a rule is looked at with micro batches of one sequence.
bool is_of_mesh(LayoutRule rule) {
  switch (rule) {
    case LayoutRule::StepTokens:
    case LayoutRule::Chunks:
    case LayoutRule::Positions:
    case LayoutRule::Replicas:
    case LayoutRule::Batch:
    case LayoutRule::MaxPositions:
    case LayoutRule::ModelBytes:
    case LayoutRule::Layers:
    case LayoutRule::QueryHeads:
    case LayoutRule::KeyHeads:
    case LayoutRule::Narrow:
      return true;
    default:
      return false;
  }
}

/// Returns the forwards, by chunk, that a rank of an interleaved pipeline has run when
/// its first backward begins.
int64_t open_forwards(int64_t run, int64_t pp, int64_t chunks, int64_t chunk) {
  const int64_t round = pp * chunks;
  return run / round * pp + std::clamp<int64_t>(run % round - chunk * pp, 0, pp);
}

}  // namespace

const char* cause_name(TimeCause cause) {
  constexpr std::array<const char*, kTimeCauses> kNames = {"computing",
                                                           "computed again",
                                                           "exchanges over tp",
                                                           "exchanges over cp",
                                                           "exchanges over ep",
                                                           "waiting for other stages",
                                                           "gradients of replicas",
                                                           "optimizer",
                                                           "weights gathered"};
  return kNames.at(static_cast<size_t>(cause));
}

const char* cause_name(MemoryCause cause) {
  constexpr std::array<const char*, kMemoryCauses> kNames = {
      "weights",     "gradients",   "masters",           "moments",
      "whole units", "activations", "tokens and context"};
  return kNames.at(static_cast<size_t>(cause));
}

void LayoutBounds::UnitNumbers::add(const UnitNumbers& other, double times) {
  forward += times * other.forward;
  backward += times * other.backward;
  weight_gradients += times * other.weight_gradients;
  again += times * other.again;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    exchanges[i] += times * other.exchanges[i];
  }
  kept += times * other.kept;
  put_off += times * other.put_off;
}

LayoutBounds::LayoutBounds(const SearchedRun& run)
    : run_(run), config_(run.config), limits_(run.model) {
  const auto& units = run.model.units;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto same = std::ranges::find_if(examples_, [&](size_t other) {
      return units[other].kind == units[i].kind && units[other].work == units[i].work &&
             units[other].forward == units[i].forward;
    });
    class_of_.push_back(static_cast<size_t>(same - examples_.begin()));
    if (same == examples_.end()) examples_.push_back(i);
  }
}

std::optional<BrokenRule> LayoutBounds::broken() {
  set_layout(config_, at_, run_.ranks);
  auto rules = layout::broken_without_ranks(config_, limits_);
  if (rules.empty()) {
    rules = layout::broken_on_ranks(
        config_, limits_, run_.ranks,
        layout::Placement::even(static_cast<int>(run_.machine.node_ranks)));
  }
  if (rules.empty()) return {};
  const auto of_mesh = std::ranges::find_if(
      rules, [](const BrokenRule& one) { return is_of_mesh(one.rule); });
  return of_mesh == rules.end() ? rules.front() : *of_mesh;
}

void LayoutBounds::go_through(const LayoutSettings& mesh, const Visit& visit) {
  const KeptSettings& kept = run_.kept;
  if (!allows(kept.tp, mesh.tp) || !allows(kept.pp, mesh.pp) ||
      !allows(kept.cp, mesh.cp)) {
    return;
  }
  if (mesh.tp != at_.tp) {
    elements_.clear();
    unit_elements_.clear();
  }
  at_ = mesh;
  const auto rule = broken();
  if (rule && is_of_mesh(rule->rule)) {
    visit(at_, {.broken = rule});
    return;
  }
  layout_ = {};
  layout_.shape = {at_.pp, at_.dp(run_.ranks), at_.cp, at_.tp};
  layout_.tied = run_.model.tied && at_.pp > 1;
  layout_.tensor = {at_.tp, config_.parallel.sequence && at_.tp > 1};
  layout_.shared_key_heads = layout::shared_key_heads(at_.tp, limits_);
  for (const int32_t ep : limits_.experts.empty()
                              ? divisors_of(1)
                              : divisors_of(at_.data_ranks(run_.ranks))) {
    if (!allows(run_.kept.ep, ep)) continue;
    at_.ep = ep;
    experts(visit);
  }
}

void LayoutBounds::experts(const Visit& visit) {
  at_.micro_size = 1;
  at_.recompute = RecomputeKind::None;
  at_.pipeline = PipelineKind::OneFOneB;
  at_.virtual_stages = 1;
  const auto rule = broken();
  if (rule && rule->rule == LayoutRule::Experts) {
    visit(at_, {.broken = rule});
    return;
  }
  layout_.ep = at_.ep;
  spreads_ = {spread(GroupKind::Tp, 1), spread(GroupKind::Cp, 1),
              spread(GroupKind::Ep, 1)};
  stages_ = spread_of(layout_.rank_groups(), GroupKind::Pp, 0, run_.machine.node_ranks);
  variants_ = variants();
  const int64_t sequences = config_.batch.global_size / layout_.shape.dp;
  for (const int32_t micro_size : divisors_of(sequences)) {
    if (!allows(run_.kept.micro_size, micro_size)) continue;
    at_.micro_size = micro_size;
    for (const auto recompute :
         {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
      if (!allows(run_.kept.recompute, recompute)) continue;
      at_.recompute = recompute;
      passes(visit);
    }
  }
}

void LayoutBounds::passes(const Visit& visit) {
  at_.pipeline = PipelineKind::OneFOneB;
  at_.virtual_stages = 1;
  set_layout(config_, at_, run_.ranks);
  layout_.pipeline = at_.pipeline;
  passes_ = layout::passes_of(config_, run_.model, layout_, run_.profile.device);
  micro_batches_ = static_cast<double>(config_.batch.global_size) /
                   (static_cast<double>(at_.micro_size) * layout_.shape.dp);
  again_share_ = at_.recompute == RecomputeKind::Full ? 1.0 : 0.0;
  count_units(passes_);
  const KeptSettings& kept = run_.kept;
  if (at_.pp == 1) {
    // The kind of a pipeline with one stage has no effect, unless it needs several.
    const bool one = kept.pipeline != PipelineKind::Interleaved;
    if (one && allows(kept.virtual_stages, 1)) schedule(visit);
    return;
  }
  for (const auto kind :
       {PipelineKind::OneFOneB, PipelineKind::GPipe, PipelineKind::ZeroBubbleH1}) {
    if (!allows(kept.pipeline, kind) || !allows(kept.virtual_stages, 1)) continue;
    at_.pipeline = kind;
    schedule(visit);
  }
  if (!allows(kept.pipeline, PipelineKind::Interleaved)) return;
  at_.pipeline = PipelineKind::Interleaved;
  for (at_.virtual_stages = 2; at_.virtual_stages * at_.pp <= limits_.layers;
       ++at_.virtual_stages) {
    if (allows(kept.virtual_stages, at_.virtual_stages)) schedule(visit);
  }
}

void LayoutBounds::schedule(const Visit& visit) {
  at_.zero = 0;
  at_.shards = 1;
  if (const auto rule = broken()) {
    visit(at_, {.broken = rule});
    return;
  }
  fill_stages();
  const std::vector<StageElements>& of_stage = elements();
  for (const Variant& variant : variants_) {
    at_.zero = variant.zero;
    at_.shards = variant.shards;
    visit(at_, bound_of(variant, of_stage));
  }
  at_.zero = 0;
  at_.shards = 1;
}

bool LayoutBounds::stages_lie_alike() const {
  const layout::MeshShape& shape = layout_.shape;
  const int64_t of_stage = int64_t{shape.dp} * shape.cp * shape.tp;
  const int64_t node = run_.machine.node_ranks;
  return shape.pp == 1 || of_stage % node == 0 || node % of_stage == 0;
}

GroupSpread LayoutBounds::spread(GroupKind kind, int32_t shards) const {
  // The groups of other stages may lie in other ways than the first one, and exchange
  // less.
  if (!stages_lie_alike()) return {};
  const layout::Groups groups(layout_.shape, shards, layout_.tied,
                              layout_.shared_key_heads, layout_.ep);
  return spread_of(groups, kind, 0, run_.machine.node_ranks);
}

std::vector<LayoutBounds::Variant> LayoutBounds::variants() {
  const auto make = [&](int32_t zero, int32_t shards) {
    return Variant{zero,
                   shards,
                   spread(GroupKind::Shard, shards),
                   spread(GroupKind::Replicas, shards),
                   spread(GroupKind::ExpertShard, shards),
                   spread(GroupKind::ExpertReplicas, shards)};
  };
  const std::optional<int64_t>& zero = run_.kept.zero;
  const std::optional<int32_t> kept = kept_shards();
  std::vector<Variant> variants;
  if (allows(zero, 0)) variants.push_back(make(0, 1));
  for (const int32_t shards : divisors_of(at_.data_ranks(run_.ranks))) {
    if (!allows(kept, shards)) continue;
    // A shard group of one rank is what ZeRO 0 has, unless the run keeps another ZeRO.
    const bool alone = at_.data_ranks(run_.ranks) == 1 || kept;
    if (shards == 1 && (allows(zero, 0) || !alone)) continue;
    if (at_.ep % shards != 0 && shards % at_.ep != 0) continue;
    Variant variant = make(1, shards);
    for (variant.zero = 1; variant.zero <= 3; ++variant.zero) {
      if (allows(zero, variant.zero)) variants.push_back(variant);
    }
  }
  return variants;
}

std::optional<int32_t> LayoutBounds::kept_shards() {
  if (!run_.kept.shard_group) return {};
  config_.parallel.zero = 1;
  config_.parallel.shard_group = *run_.kept.shard_group;
  const auto size = layout::shard_group_size(
      config_, layout_.shape,
      layout::Placement::even(static_cast<int>(run_.machine.node_ranks)));
  const int* shards = std::get_if<int>(&size);
  return shards != nullptr ? *shards : 0;
}

void LayoutBounds::count_units(const layout::Passes& passes) {
  const format::TpRank rank = layout_.tensor.rank(0);
  const layout::GroupKind kinds[] = {GroupKind::Tp, GroupKind::Cp, GroupKind::Ep};
  message_s_ = seconds_of(run_.machine, stages_,
                          {layout::TrafficKind::Pipeline, GroupKind::Pp, Verb::SendRecv,
                           1, passes.boundary_bytes()});
  numbers_.clear();
  for (const size_t example : examples_) {
    const UnitDescription& unit = run_.model.units[example];
    const ForwardSeconds seconds =
        forward_seconds(unit, passes, layout_, config_.data.seq_len, run_.machine);
    UnitNumbers numbers;
    numbers.forward = seconds.forward();
    numbers.backward = seconds.backward();
    numbers.weight_gradients = seconds.weight_gradients();
    numbers.again = seconds.again();
    const layout::Traffic traffic =
        layout::pass_traffic(passes, config_, layout_, {}, unit);
    for (const layout::TrafficLine& line : traffic.lines()) {
      for (size_t i = 0; i < spreads_.size(); ++i) {
        if (line.group != kinds[i]) continue;
        numbers.exchanges[i] += seconds_of(run_.machine, spreads_[i], line);
      }
    }
    const bool block = unit.kind == UnitKind::Block;
    numbers.kept = static_cast<double>(
        unit.forward.kept(passes.form_of(unit), passes.tokens, rank, block).total());
    numbers.put_off = static_cast<double>(
        unit.forward.kept_put_off(passes.form, passes.tokens, rank).total());
    numbers.work =
        static_cast<double>(layout::unit_work_bytes(passes, unit, layout_, {}));
    numbers_.push_back(numbers);
  }
}

const LayoutBounds::Cut& LayoutBounds::cut() {
  const auto [found, fresh] = cuts_.try_emplace(int64_t{at_.pp} * at_.virtual_stages);
  Cut& cut = found->second;
  if (!fresh) return cut;
  cut.stages = layout::place_layout(config_, limits_, run_.ranks, {}).stages;
  for (const StageSpec& spec : cut.stages) {
    std::vector<SameUnits>& here = cut.units.emplace_back();
    for (size_t i = 0; i < class_of_.size(); ++i) {
      if (!is_in_stage(run_.model.units[i], spec)) continue;
      const auto same = std::ranges::find(here, class_of_[i], &SameUnits::of_class);
      if (same == here.end()) {
        here.push_back({class_of_[i], 1.0});
      } else {
        same->number += 1.0;
      }
    }
  }
  return cut;
}

size_t LayoutBounds::stage_of(int32_t chunk, int32_t stage) const {
  return static_cast<size_t>(int64_t{chunk} * at_.pp + stage);
}

void LayoutBounds::fill_memory(StagePasses& stage, const std::vector<UnitNumbers>& chunks,
                               int32_t number) const {
  const auto micro_batches = static_cast<int64_t>(micro_batches_);
  const int64_t behind = at_.pp - number - 1;
  int64_t open = at_.pipeline == PipelineKind::GPipe
                     ? micro_batches
                     : std::min(micro_batches, behind + 1);
  if (at_.pipeline == PipelineKind::Interleaved) {
    const int64_t warm_up = 2 * behind + int64_t{at_.virtual_stages - 1} * at_.pp;
    open = std::min(warm_up + 1, micro_batches * at_.virtual_stages);
    for (int64_t chunk = 0; chunk < at_.virtual_stages; ++chunk) {
      stage.activations +=
          chunks[static_cast<size_t>(chunk)].kept *
          static_cast<double>(open_forwards(open, at_.pp, at_.virtual_stages, chunk));
    }
  } else {
    stage.activations += chunks[0].kept * static_cast<double>(open);
  }
  if (at_.pipeline == PipelineKind::ZeroBubbleH1) {
    const int64_t late = std::clamp<int64_t>(micro_batches - open, 0, number);
    stage.activations += chunks[0].put_off * static_cast<double>(late);
  }
  if (run_.profile.device == "cpu") return;
  stage.rest = run_.profile.node.context_bytes;
  if (at_.pipeline == PipelineKind::OneFOneB || at_.pipeline == PipelineKind::GPipe) {
    stage.rest += static_cast<double>(open * passes_.tokens.inside * passes_.token_bytes);
  }
}

void LayoutBounds::fill_stages() {
  const Cut& of_run = cut();
  const double share = 1.0 / (2.0 + again_share_);
  of_stage_.assign(static_cast<size_t>(at_.pp), {});
  std::vector<UnitNumbers> chunks;
  busiest_ = 0.0;
  for (int32_t number = 0; number < at_.pp; ++number) {
    StagePasses& stage = of_stage_[static_cast<size_t>(number)];
    chunks.assign(static_cast<size_t>(at_.virtual_stages), {});
    double block_work = 0.0, head_work = 0.0, head_kept = 0.0;
    for (int32_t chunk = 0; chunk < at_.virtual_stages; ++chunk) {
      for (const SameUnits& same : of_run.units[stage_of(chunk, number)]) {
        const UnitNumbers& unit = numbers_[same.of_class];
        const UnitKind kind = run_.model.units[examples_[same.of_class]].kind;
        chunks[static_cast<size_t>(chunk)].add(unit, same.number);
        if (kind == UnitKind::Block) block_work = std::max(block_work, unit.work);
        if (kind != UnitKind::Head) continue;
        head_work = unit.work;
        head_kept = unit.kept;
      }
      stage.all.add(chunks[static_cast<size_t>(chunk)], 1.0);
    }
    const UnitNumbers& all = stage.all;
    const double exchanges =
        std::accumulate(all.exchanges.begin(), all.exchanges.end(), 0.0);
    const double of_chunk = exchanges / at_.virtual_stages;
    stage.busy =
        micro_batches_ * (all.forward + all.backward + all.weight_gradients + exchanges);
    stage.first = chunks[0].forward + of_chunk * share;
    stage.last = chunks[0].backward + of_chunk * (1.0 - share);
    stage.last_own = chunks[0].weight_gradients;
    stage.activations = std::max(head_work, block_work - head_kept);
    if (at_.pp > 1) stage.activations += static_cast<double>(passes_.boundary_bytes());
    fill_memory(stage, chunks, number);
    busiest_ = std::max(busiest_, stage.busy);
  }
  // A stage begins when the first micro batch has come to it. The last micro batch goes
  // back through all stages before it.
  end_ = 0.0;
  double before = 0.0, after = 0.0;
  for (int32_t number = 0; number < at_.pp; ++number) {
    const StagePasses& stage = of_stage_[static_cast<size_t>(number)];
    const bool late = at_.pipeline == PipelineKind::ZeroBubbleH1;
    const double own =
        stage.last_own * std::min(micro_batches_, late ? 1.0 + number : 1.0);
    end_ = std::max(end_, before + stage.busy);
    end_ = std::max(end_, before + stage.busy - own + after + of_stage_.front().last_own);
    before += stage.first + message_s_;
    after += stage.last + message_s_;
  }
}

}  // namespace longhaul::plan
