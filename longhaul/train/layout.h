#pragma once

#include <memory>
#include <vector>

#include "longhaul/comm/mesh.h"
#include "longhaul/config/load.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/families/description.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/context/layout.h"
#include "longhaul/parallel/data/data_parallel.h"
#include "longhaul/tensor/flat_buffers.h"
#include "longhaul/train/capture.h"

namespace longhaul::train {

/// The sum groups of buckets (Bucket::sum_group).
enum SumGroup : int {
  kNoSum = 0,
  kTensorSum = 1,  ///< over tp: vectors that saw a part of the tokens each
  kKeySum = 2,     ///< over the ranks that hold the same key heads
  kTiedSum = 3,    ///< over the first and the last stage: a tied embedding
};

/// How a run lies on its ranks: the mesh, the groups beside its axes, and which layers
/// are on which stage. Owns its communicators.
struct Layout {
  std::unique_ptr<comm::Mesh> mesh;
  FlatSharding sharding;
  parallel::DataGroups groups;
  /// By global stage: chunk * pp + the rank's pp index.
  std::vector<StageSpec> stages;
  /// OneFOneB where there is one stage only.
  PipelineKind pipeline = PipelineKind::OneFOneB;
  int chunks = 1;     ///< virtual stages per rank
  bool tied = false;  ///< the first and the last stage hold one embedding

  ShardPlan tensor;  ///< how parameters split over tp
  /// Null: all features are on this rank.
  std::unique_ptr<nn::SplitRegion> region;
  /// Null: all positions are on this rank.
  std::unique_ptr<parallel::ContextLayout> context;
  nn::AttentionCore attention;

  /// Where its activations lie in those of all ranks.
  ActivationPlace activation_place(const RunConfig& config) const;
  /// This rank's positions of its sequences.
  void take_own_positions(std::vector<data::TokenBatch>& batches) const;
  /// "pp 2 x dp 2 x cp 1 x tp 2, zero 1": for logs and fingerprints.
  std::string describe() const;
  int zero = 0;

  /// For what passes between stages.
  comm::Communicator* boundaries = nullptr;

  at::Device device = at::kCPU;
  double deadline_seconds = 0.0;
  std::vector<std::shared_ptr<comm::Communicator>> owned;
  comm::Communicator* keep(std::shared_ptr<comm::Communicator> group);
  /// The group for tensors of the device, made of a group for host memory; it itself on a
  /// CPU. Collective.
  comm::Communicator* for_tensors(comm::Communicator& group);
};

/// Checks that the degrees fit the world, the model and the batch, and splits the world.
/// ConfigError names the key and the numbers. Collective.
Layout make_layout(const RunConfig& config, const ModelDescription& model,
                   at::Device device, std::shared_ptr<comm::Communicator> world);

}  // namespace longhaul::train
