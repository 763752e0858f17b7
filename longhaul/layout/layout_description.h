#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/config/load.h"
#include "longhaul/families/description.h"
#include "longhaul/layout/buckets.h"
#include "longhaul/layout/context.h"
#include "longhaul/layout/groups.h"
#include "longhaul/layout/pipeline/plan.h"
#include "longhaul/layout/unit_plan.h"

namespace longhaul {

/// Which ranks share a machine.
class Placement {
 public:
  /// All on one machine.
  Placement() = default;
  /// So many on each, side by side.
  static Placement even(int ranks_per_node);
  /// The machine of each rank.
  static Placement listed(std::vector<int> nodes);

  int node_of(int rank) const;

 private:
  int ranks_per_node_ = 0;
  std::vector<int> nodes_;
};

/// How a run lies on its ranks: a pure function of their number, their machines, the
/// settings and the model. Communicators, buffers and plans of a run are made from it.
struct LayoutDescription {
  MeshShape shape;
  DerivedBatch batch;
  int zero = 0;
  int shards = 1;     ///< ranks of a shard group
  int ep = 1;         ///< ranks that have all experts together; more are not built yet
  int chunks = 1;     ///< virtual stages per rank
  bool tied = false;  ///< the first and the last stage hold one embedding
  /// OneFOneB where there is one stage only.
  PipelineKind pipeline = PipelineKind::OneFOneB;
  /// By global stage: chunk * pp + the rank's pp index.
  std::vector<StageSpec> stages;
  ShardPlan tensor;  ///< how parameters split over tp
  /// Nothing: all positions are on each rank.
  std::optional<ContextLayout> context;
  int64_t weight_bytes = 4;  ///< of one weight in the compute dtype
  /// Of weights that a rank may hold gathered; 0: as few as a step needs.
  int64_t gathered_budget = 0;

  Groups rank_groups() const { return {shape, shards, tied, tensor, ep}; }
  /// That hold a shard each of a bucket, and those that hold the same one.
  static GroupKind shard_group(const BucketShape& bucket);
  static GroupKind replica_group(const BucketShape& bucket);
  const StageSpec& stage(int rank, int chunk) const;
  FlatSharding sharding(int rank) const;
  /// A step's actions on every stage. ConfigError as make_pipeline_plan.
  PipelinePlan training_plan() const;

  /// This rank's parameters in forward order, chunk by chunk; units count through.
  /// `frozen`: by name. ConfigError where the split leaves a rank without a part.
  std::vector<PlacedParameter> parameters(
      const ModelDescription& model, int rank,
      const std::function<bool(const std::string&)>& frozen = {}) const;

  std::vector<ChunkUnits> chunk_units(const ModelDescription& model, int rank) const;
  /// For plan_units. `buckets`: those of the rank's parameters.
  RankUnits rank_units(const ModelDescription& model, int rank,
                       const std::vector<BucketShape>& buckets) const;

  /// "pp 2 x dp 2 x cp 1 x tp 2, zero 1": for logs and fingerprints.
  std::string describe() const;
};

/// ConfigError that names the key and the numbers, for whatever does not fit the ranks,
/// the model or the batch.
LayoutDescription describe_layout(const RunConfig& config, const ModelDescription& model,
                                  int64_t ranks, const Placement& placement = {});

/// Bytes of one rank that a run keeps from step to step.
struct StateBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t masters = 0;  ///< none where they are the weights themselves
  int64_t moments = 0;
};
/// Without what a step gathers for a moment: see gathered_peak.
StateBytes state_bytes(const std::vector<BucketPlan>& buckets,
                       const PrecisionSection& precision);

}  // namespace longhaul
