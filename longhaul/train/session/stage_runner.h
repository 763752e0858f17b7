#pragma once

#include <torch/csrc/autograd/function.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "longhaul/data/sources/token_source.h"
#include "longhaul/layout/unit_plan.h"
#include "longhaul/models/model.h"
#include "longhaul/parallel/data/unit_runner.h"
#include "longhaul/parallel/pipeline/runner.h"
#include "longhaul/parallel/recompute/offload.h"
#include "longhaul/train/observe/capture.h"
#include "longhaul/train/observe/profile.h"

namespace longhaul::train {

/// A part of the model that lies on this rank: one pipeline stage, or one of its virtual
/// stages.
struct Chunk {
  std::unique_ptr<models::Model> model;
  ChunkUnits units;
};

/// Looks on while a forward pass runs. Calls come in the order of the pass; tensors may
/// be freed after the call. Collective where the layout splits features.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  /// Hidden states after the embedding: [T, H], this rank's part of T.
  virtual void embedding(const at::Tensor& /*y*/) {}
  /// The same after a block.
  virtual void layer(int64_t /*layer*/, const at::Tensor& /*y*/) {}
  /// What Model::head gives, while the weights of the output projection are there.
  virtual void head(const models::Model& model, const nn::Tensors& hidden,
                    const nn::ForwardContext& context) = 0;
};

/// What a stage runner needs to know once.
struct StageOptions {
  at::Device device = at::kCPU;
  /// What every pass is given alike; the runner adds what belongs to a micro batch. Its
  /// dropout_key counts in passes with gradients only.
  nn::ForwardContext context;
  /// Layers [0, recompute_end) keep their input only.
  int64_t recompute_end = 0;
  bool offload = false;  ///< inputs kept for recomputation wait in host memory
  double z_loss = 0.0;
  RankUnits units;
  std::vector<int64_t> passed;  ///< widths of what stages hand on
  /// Ranks that share the tokens between regions (sequence parallelism).
  int64_t token_parts = 1;
  std::function<void()> drive;  ///< drives communication on; empty: nothing to drive
  Capture* capture = nullptr;   ///< where activations are to be looked at
  Profile* profile = nullptr;   ///< where it is asked what takes the time
  ForwardObserver* observer = nullptr;
  /// By chunk: what generation has seen so far; null: a pass is complete by itself.
  std::vector<nn::KvCache>* caches = nullptr;
};

/// Does the actions of a schedule for the chunks of this rank: runs their forward and
/// backward passes with the layout's policies.
class StageRunner : public parallel::PipelineStage {
 public:
  /// Chunks and replicas must outlive this.
  StageRunner(const std::vector<Chunk>& chunks, parallel::DataParallel& replicas,
              StageOptions options);

  /// `batches`: this rank's micro batches of the step, its own positions only; they must
  /// stay until it has ended. Of one without targets there is no loss. `scales`: of each
  /// term of the loss, one over its denominator in the global batch.
  void begin_step(std::vector<data::TokenBatch>& batches, std::vector<double> scales);
  /// The plan whose actions follow, as stage `stage` of it. Without gradients no grad
  /// mode.
  void begin_plan(const PipelinePlan& plan, int stage);
  /// Waits for reductions; after it owned gradients are complete.
  void end_plan() { units_.end(); }
  /// Each term of the loss summed over this rank's targets since begin_step, unscaled; 0
  /// where this rank has nothing of it. Waits for the device.
  std::vector<double> loss_sums() const { return losses_.sums(); }
  /// The same as fp64 [terms] on this rank's device, which is not waited for.
  at::Tensor device_loss_sums() const { return losses_.sums_on(options_.device); }
  /// Forgets what a failed step has left behind.
  void clear();

  parallel::Shapes boundary_shapes(int64_t micro_batch) override;
  /// Without grad mode nothing is kept.
  nn::Tensors forward(int64_t chunk, int64_t micro_batch,
                      const nn::Tensors& input) override;
  nn::Tensors backward(int64_t chunk, int64_t micro_batch,
                       const nn::Tensors& grads) override;
  void weight_gradients(int64_t chunk, int64_t micro_batch) override;

 private:
  /// A micro batch between its forward and its last weight gradient.
  struct Flight {
    nn::ForwardContext context;
    nn::Tensors input;
    /// Of the backward; the outputs themselves may be freed.
    torch::autograd::edge_list roots;
  };
  using Key = std::pair<int64_t, int64_t>;  // chunk, micro batch

  Flight& begin_flight(int64_t chunk, int64_t micro_batch, const nn::Tensors& input);
  /// The chunk's units, one after the other: what its last one gives.
  nn::Tensors run_units(const Chunk& chunk, int64_t micro_batch, const Flight& flight);
  nn::Tensors recompute(const models::Model& model, int64_t layer, const nn::Tensors& x,
                        const nn::ForwardContext& context);
  void capture(const std::string& name, int64_t micro_batch, const at::Tensor& y);
  at::Tensor loss(const Chunk& chunk, const Flight& flight, const nn::Tensors& hidden);

  const std::vector<Chunk>& chunks_;
  parallel::UnitRunner units_;
  UnitPlan planned_;  ///< of the actions that were run last
  std::vector<PipelineAction> planned_actions_;
  StageOptions options_;
  std::shared_ptr<parallel::Offload> offload_;  ///< null: kept inputs stay
  std::vector<data::TokenBatch>* batches_ = nullptr;
  nn::Losses losses_;
  std::map<Key, Flight> flights_;
};

}  // namespace longhaul::train
