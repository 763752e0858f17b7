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
#include "longhaul/session/capture.h"
#include "longhaul/session/profile.h"

namespace longhaul::session {

/// A part of the model that lies on this rank: one pipeline stage, or one of its virtual
/// stages.
struct Chunk {
  std::unique_ptr<models::Model> model;
  layout::ChunkUnits units;
};

/// Watches a forward pass. Calls come in the order of the pass; tensors may be freed
/// after the call. Collective where the layout splits features.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  /// Receives the hidden states after the embedding: [T, H], of this rank's tokens.
  virtual void embedding(const at::Tensor& /*y*/) {}
  /// Receives the hidden states [T, H] after a block, and the context of the pass.
  virtual void layer(int64_t /*layer*/, const at::Tensor& /*y*/,
                     const nn::ForwardContext& /*context*/) {}
  /// Receives the result of Model::head while the weights of the output projection are
  /// there.
  virtual void head(const models::Model& model, const nn::Tensors& hidden,
                    const nn::ForwardContext& context) = 0;
  /// Returns true if the targets are only for the observer, so that no loss is computed.
  virtual bool takes_targets() const { return false; }
};

/// The options that a stage runner gets when it is made.
struct StageOptions {
  at::Device device = at::kCPU;
  /// The part of the forward context that is the same in every pass; the runner adds what
  /// belongs to a micro batch. The dropout_key is used in passes with gradients only.
  nn::ForwardContext context;
  /// Layers [0, recompute_end) keep only their input and are computed again in the
  /// backward.
  int64_t recompute_end = 0;
  bool masks_documents = false;  ///< documents may begin within rows (batch_of())
  bool offload = false;          ///< inputs kept for the backward lie in host memory
  double z_loss = 0.0;
  layout::RankUnits units;
  std::vector<int64_t> passed;  ///< widths of the tensors that stages pass on
  /// Number of ranks that share the tokens outside of tp-split layers (SplitRegion).
  int64_t token_parts = 1;
  std::function<void()> drive;  ///< keeps communication going; may be empty
  /// Called before the forward and the backward of each unit of the model; may be empty.
  std::function<void()> begin_unit;
  /// Called after each forward pass whose backward follows; may be empty.
  std::function<void()> after_forward;
  Capture* capture = nullptr;  ///< where activations are captured; may be null
  Profile* profile = nullptr;  ///< where times are recorded; may be null
  ForwardObserver* observer = nullptr;
  /// The keys and values that generation has seen so far, by chunk; null: each pass is
  /// complete by itself.
  std::vector<nn::KvCache>* caches = nullptr;
};

/// Executes the actions of a pipeline plan for the chunks of this rank: runs their
/// forward and backward passes as the layout says.
class StageRunner : public parallel::PipelineStage {
 public:
  /// `chunks` and `replicas` must outlive this object.
  StageRunner(const std::vector<Chunk>& chunks, parallel::DataParallel& replicas,
              StageOptions options);

  /// Begins a step. `batches` are this rank's micro batches, with its own positions only;
  /// the batches must stay until the step has ended. A batch without targets has no loss.
  /// `scales` has, for each term of the loss, one over the term's denominator in the
  /// global batch.
  void begin_step(std::vector<data::TokenBatch>& batches, std::vector<double> scales);
  /// Begins a plan, whose actions follow, as stage `stage` of it. A plan without
  /// gradients needs a thread without grad mode.
  void begin_plan(const layout::PipelinePlan& plan, int stage);
  /// Waits for reductions; afterwards the gradients that this rank owns are complete.
  void end_plan() { units_.end(); }
  /// Returns each term of the loss, summed over this rank's targets since begin_step and
  /// not scaled; 0 where this rank does not compute the term. Waits for the device.
  std::vector<double> loss_sums() const { return losses_.sums(); }
  /// Returns the sums as an fp64 tensor on this rank's device, without waiting for the
  /// device; fp32 on a device without 64-bit numbers. The host makes the sums of terms of
  /// the values by sums_of_read().
  at::Tensor device_loss_sums() const { return losses_.sums_on(options_.device); }
  /// Returns each term's sum from the values of device_loss_sums() on the host.
  std::vector<double> sums_of_read(const std::vector<double>& values) const {
    return losses_.of_read(values);
  }
  /// Returns what the routers of this rank's layers have done since begin_step: an fp64
  /// tensor of the counts [layers, E] and the entropies [layers], one after the other,
  /// without waiting for the device. The tensor is empty for a model without experts, and
  /// fp32 on a device without 64-bit numbers.
  at::Tensor device_router_loads() const;
  /// Sets RouterContext::shares for the passes that follow.
  void set_shares(at::Tensor shares) {
    options_.context.router.shares = std::move(shares);
  }
  /// Sets StageOptions::caches for the passes that follow.
  void set_caches(std::vector<nn::KvCache>* caches) { options_.caches = caches; }
  /// Forgets what a failed step has left behind.
  void clear();

  parallel::Shapes boundary_shapes(int64_t micro_batch) override;
  /// Keeps nothing for a backward when there is no grad mode.
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
    /// Roots of the backward; the outputs themselves may be freed.
    torch::autograd::edge_list roots;
  };
  using Key = std::pair<int64_t, int64_t>;  // chunk, micro batch

  Flight& begin_flight(int64_t chunk, int64_t micro_batch, const nn::Tensors& input);
  /// Runs the chunk's units one after the other and returns the result of the last one.
  nn::Tensors run_units(const Chunk& chunk, int64_t micro_batch, const Flight& flight);
  nn::Tensors recompute(const models::Model& model, int64_t layer, const nn::Tensors& x,
                        const nn::ForwardContext& context);
  void capture(const std::string& name, int64_t micro_batch, const at::Tensor& y);
  at::Tensor loss(const Chunk& chunk, const Flight& flight, const nn::Tensors& hidden);

  const std::vector<Chunk>& chunks_;
  parallel::UnitRunner units_;
  layout::UnitPlan planned_;  ///< plan of the actions that were run last
  std::vector<layout::PipelineAction> planned_actions_;
  StageOptions options_;
  std::shared_ptr<parallel::Offload>
      offload_;  ///< null where kept inputs stay on the device
  std::vector<data::TokenBatch>* batches_ = nullptr;
  nn::Losses losses_;
  nn::RouterLoads loads_;  ///< undefined tensors for a model without experts
  std::map<Key, Flight> flights_;
};

}  // namespace longhaul::session
