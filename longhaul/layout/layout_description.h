#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/config/load.h"
#include "longhaul/families/description/description.h"
#include "longhaul/layout/buckets.h"
#include "longhaul/layout/context.h"
#include "longhaul/layout/groups.h"
#include "longhaul/layout/pipeline/plan.h"
#include "longhaul/layout/shard_plan.h"
#include "longhaul/layout/unit_plan.h"

namespace longhaul::layout {

/// How a run lies on its ranks: a pure function of the number of ranks, their machines,
/// the settings and the model. Communicators, buffers and plans of a run follow from this
/// description.
struct LayoutDescription {
  MeshShape shape;
  DerivedBatch batch;
  int zero = 0;
  int shards = 1;     ///< ranks of a shard group
  int ep = 1;         ///< ranks that have all experts together
  int chunks = 1;     ///< virtual stages per rank
  bool tied = false;  ///< the first and the last stage hold one embedding
  /// The schedule of the pipeline; OneFOneB if there is only one stage.
  PipelineKind pipeline = PipelineKind::OneFOneB;
  /// The stages by global number, which is chunk * pp + the rank's pp index.
  std::vector<StageSpec> stages;
  ShardPlan tensor;              ///< how parameters split over tp
  int64_t shared_key_heads = 0;  ///< see layout/rules.h
  /// The cut of sequences over cp; absent if every rank has all positions.
  std::optional<ContextLayout> context;
  int64_t weight_bytes = 4;  ///< bytes of one weight in the compute dtype
  /// Bytes of gathered weights that a rank may hold; 0: as few as a step needs.
  int64_t gathered_budget = 0;
  bool apart = false;  ///< see FlatSharding

  Groups rank_groups() const { return {shape, shards, tied, shared_key_heads, ep}; }
  /// Returns the kind of the group in which each rank holds another shard of a bucket.
  static GroupKind shard_group(const BucketShape& bucket);
  /// Returns the kind of the group in which each rank holds the same shard of a bucket.
  static GroupKind replica_group(const BucketShape& bucket);
  /// Returns the kind of the group whose ranks hold copies of the buckets of a sum group.
  static GroupKind copy_group(int sum_group);
  const StageSpec& stage(int rank, int chunk) const;
  FlatSharding sharding(int rank) const;
  /// Returns a step's actions on every stage.
  PipelinePlan training_plan() const;

  /// Returns a rank's parameters in forward order, chunk by chunk, with units numbered
  /// through all chunks. `frozen` says by name which parameters are frozen.
  std::vector<PlacedParameter> parameters(
      const ModelDescription& model, int rank,
      const std::function<bool(const std::string&)>& frozen = {}) const;

  std::vector<ChunkUnits> chunk_units(const ModelDescription& model, int rank) const;
  /// Returns the rank's units for plan_units. `buckets` hold the rank's parameters.
  RankUnits rank_units(const ModelDescription& model, int rank,
                       const std::vector<BucketShape>& buckets) const;

  /// Returns how many layers each stage has, by the stage's global number, as
  /// parallel.partition says it.
  std::vector<int64_t> partition() const;
  /// Returns a text for logs and fingerprints: "pp 2 x dp 2 x cp 1 x tp 2, zero 1".
  std::string describe() const;
};

/// Returns the number of ranks along each axis for a run on `ranks` ranks, which are a
/// multiple of pp * cp * tp.
MeshShape mesh_of(const RunConfig& config, int64_t ranks);

struct ModelLimits;
/// Describes the layout of settings that break no rule of the model (layout/rules.h).
LayoutDescription place_layout(const RunConfig& config, const ModelLimits& limits,
                               int64_t ranks, const Placement& placement);

/// Describes the layout of a run. Throws ConfigError, which names the key and the
/// numbers, for the first of the rules of the model on these ranks that is broken
/// (broken_on_ranks).
LayoutDescription describe_layout(const RunConfig& config, const ModelDescription& model,
                                  int64_t ranks, const Placement& placement = {});

/// Returns the partition that older versions of the program chose for these settings,
/// which break no rule of the model. For them every layer cost as much as all layers do
/// on average. It serves their checkpoints, which do not say how many layers a stage had.
std::vector<int64_t> partition_by_average(const RunConfig& config,
                                          const ModelDescription& model);

/// Bytes that one rank keeps from step to step.
struct StateBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t masters = 0;  ///< 0 where the weights themselves are the masters
  int64_t moments = 0;
};
/// Returns the bytes of a rank with these buckets, without what a step gathers for a
/// while (gathered_peak). `has_base`: frozen buckets are the base of an adapter
/// (ModelDescription::has_base), which has no masters.
StateBytes state_bytes(const std::vector<BucketPlan>& buckets,
                       const PrecisionSection& precision, bool has_base = false);
/// Returns the bytes of the tensors in a checkpoint of the model: each master once, and
/// the moments of each parameter that is not frozen; nothing of an adapter's base.
int64_t checkpoint_bytes(const ModelDescription& model, const PrecisionSection& precision,
                         const std::function<bool(const std::string&)>& frozen = {});

}  // namespace longhaul::layout
