#pragma once

#include "longhaul/data/token_source.h"
#include "longhaul/infer/micro_batch.h"
#include "longhaul/models/model.h"
#include "longhaul/parallel/data/data_parallel.h"
#include "longhaul/parallel/pipeline/schedule.h"

namespace longhaul::train {

/// What a stage runner needs to know once.
struct StageOptions {
  at::Device device = at::kCPU;
  bool fused = true;
  bool recompute = false;
  double z_loss = 0.0;
};

/// Does the actions of a schedule for a stage that is the whole model.
class StageRunner : public parallel::StageActions {
 public:
  /// Model and replicas must outlive this.
  StageRunner(const models::Model& model, parallel::DataParallel& replicas,
              StageOptions options);

  /// `batches`: this rank's micro batches of the step; they must stay until it has ended.
  /// `scale`: one over the targets of the global batch.
  void begin_step(std::vector<data::TokenBatch>& batches, double scale);
  /// Cross-entropy summed over this rank's targets since begin_step, unscaled.
  double cross_entropy_sum() const { return cross_entropy_sum_; }
  /// Forgets what a failed step has left behind.
  void clear();

  void forward(int64_t micro_batch) override;
  void backward(int64_t micro_batch) override;
  void weight_gradients() override { weight_gradients_->drain(); }
  void reduce_gradients() override { replicas_.reduce_gradients(); }

 private:
  const models::Model& model_;
  parallel::DataParallel& replicas_;
  StageOptions options_;
  ops::WeightGradientsPtr weight_gradients_;
  std::vector<data::TokenBatch>* batches_ = nullptr;
  double scale_ = 1.0;
  double cross_entropy_sum_ = 0.0;
  infer::MicroBatch current_;
  at::Tensor loss_;
};

}  // namespace longhaul::train
