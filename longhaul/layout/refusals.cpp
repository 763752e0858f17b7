#include <fmt/format.h>

#include "longhaul/layout/rules.h"

// The functions of this file word the messages about broken rules.

namespace longhaul::layout {
namespace {

using config::Refusal;
using config::say;
using Said = config::LayoutRule;

/// Returns the message about a broken rule between settings and the model.
Refusal refusal_of_model(const BrokenRule& r, const RunConfig& config,
                         const ModelLimits& limits, const std::string& file) {
  const auto parameters = static_cast<double>(limits.parameters);
  switch (r.rule) {
    case Said::MaxPositions:
      return say("data.seq_len",
                 "data.seq_len = {} is above max_position_embeddings = {} of {}; "
                 "shorten it, or set model.override.max_position_embeddings",
                 r.number, r.limit, file);
    case Said::NoExperts:
      return say("parallel.ep",
                 "parallel.ep = {} spreads experts over ranks, and the model of {} has "
                 "none; set parallel.ep = 1",
                 r.number, file);
    case Said::Experts:
      return say("parallel.ep",
                 "parallel.ep = {} does not divide the {} experts of each layer of {}; "
                 "each rank has equally many experts, so use one of their divisors",
                 r.limit, r.number, file);
    case Said::Pooled:
      return say("experts.balance",
                 "experts.balance = \"pooled\" multiplies means over all layers and "
                 "tokens, which one pass has only with parallel.pp, cp and ep = 1, "
                 "batch.micro_size = batch.global_size and no full recomputation; use "
                 "\"sequence\" or \"global\"");
    case Said::PooledExperts:
      return say("experts.balance",
                 "experts.balance = \"pooled\" adds up the loads of all layers expert by "
                 "expert, and a layer of {} has {} experts, another one {}; use "
                 "\"sequence\" or \"global\"",
                 file, r.number, r.limit);
    case Said::ModelBytes:
      return say("model.config",
                 "{}: a model of {:.3g} parameters, whose bytes cannot be counted; "
                 "correct its sizes",
                 file, parameters);
    case Said::StepBytes:
      return say(
          "batch.global_size",
          "batch.global_size = {} sequences of data.seq_len = {} tokens in "
          "{:.0f} passes of a model of {:.3g} parameters move more bytes in a "
          "step than can be counted; lower batch.global_size",
          r.number, config.data.seq_len,
          static_cast<double>(r.number) / static_cast<double>(config.batch.micro_size),
          parameters);
    default:
      return config::refusal_of(r, config);
  }
}

/// Returns the message about a broken rule of shard groups or stages.
Refusal refusal_of_stages(const BrokenRule& r) {
  switch (r.rule) {
    case Said::ShardGroup:
      return say("parallel",
                 "parallel.shard_group = {} does not divide the {} ranks of dp x cp; "
                 "choose one of their divisors, or \"world\"",
                 r.limit, r.number);
    case Said::Machines:
      return say("parallel",
                 "parallel.shard_group = \"node\" needs the same number of data parallel "
                 "ranks on every machine, side by side; here there are {} to {}; start "
                 "them so (srun --distribution=block), or give a number",
                 r.number, r.limit);
    case Said::ExpertShards:
      return say("parallel",
                 "parallel.ep = {} and the {} ranks of a shard group overlap in part; "
                 "choose parallel.shard_group or parallel.ep so that one divides the "
                 "other",
                 r.number, r.limit);
    case Said::Layers:
      return say("pipeline",
                 "{} layers cannot fill {} stages (parallel.pp x virtual_stages): every "
                 "stage holds at least one layer; use at most {} stages",
                 r.number, r.limit, r.number);
    case Said::PartitionLength:
      return say("pipeline",
                 "parallel.partition has {} layer counts for {} stages (parallel.pp x "
                 "virtual_stages); give one count per stage",
                 r.number, r.limit);
    case Said::PartitionCount:
      return say("pipeline",
                 "a stage of {} layers; every stage holds at least one of the model's {} "
                 "layers",
                 r.number, r.limit);
    default:
      return say("pipeline",
                 "parallel.partition: the layer counts add up to {}, but the model has "
                 "{} layers; change them by {}",
                 r.number, r.limit, r.limit - r.number);
  }
}

}  // namespace

Refusal refusal_of(const BrokenRule& r, const RunConfig& config,
                   const ModelLimits& limits, const fs::path& file) {
  if (r.rule < Said::ShardGroup) {
    return refusal_of_model(r, config, limits, file.string());
  }
  switch (r.rule) {
    case Said::QueryHeads:
      return say("parallel",
                 "parallel.tp = {} is more than the model's {} query heads "
                 "(num_attention_heads); use at most {}",
                 r.number, r.limit, r.limit);
    case Said::KeyHeads:
      return say("parallel",
                 "parallel.tp = {} is more than the {} key heads of one layer and the {} "
                 "of another, whose key heads different groups of ranks would hold "
                 "together; use at most {}",
                 config.parallel.tp, r.number, r.limit, r.limit);
    case Said::Narrow: {
      const ParameterDescription& narrow = *limits.narrower_than(r.limit);
      return say("parallel",
                 "parallel.tp = {} leaves ranks without a part of {} {} (dim {}); use a "
                 "smaller tp",
                 r.limit, narrow.name, format::describe_shape(narrow.shape),
                 narrow.split->dim);
    }
    case Said::InterleavedBatches: {
      const int64_t below = r.number / r.limit * r.limit;
      return say("pipeline",
                 "parallel.pipeline = \"interleaved\" needs a multiple of parallel.pp = "
                 "{} micro batches, not {}; change batch.global_size or batch.micro_size "
                 "so that there are {}{}, or choose \"1f1b\"",
                 r.limit, r.number, below == 0 ? "" : fmt::format("{} or ", below),
                 below + r.limit);
    }
    case Said::Gathered:
      return say("memory",
                 "memory.gathered_gb = {} is too small: one unit in use and the next "
                 "unit that is being gathered take {:.12g} GB on stage {}; give at least "
                 "that, or 0",
                 config.memory.gathered_gb, 1e-9 * static_cast<double>(r.limit), r.stage);
    default:
      return refusal_of_stages(r);
  }
}

}  // namespace longhaul::layout
