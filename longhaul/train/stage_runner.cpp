#include "longhaul/train/stage_runner.h"

#include <torch/csrc/autograd/autograd.h>

#include "longhaul/base/error.h"
#include "longhaul/parallel/recompute/recompute.h"

namespace longhaul::train {

StageRunner::StageRunner(const models::Model& model, parallel::DataParallel& replicas,
                         StageOptions options)
    : model_(model),
      replicas_(replicas),
      options_(options),
      weight_gradients_(std::make_shared<ops::WeightGradients>()) {}

void StageRunner::begin_step(std::vector<data::TokenBatch>& batches, double scale) {
  batches_ = &batches;
  scale_ = scale;
  cross_entropy_sum_ = 0.0;
}

void StageRunner::clear() {
  weight_gradients_->clear();
  loss_.reset();
  current_ = {};
}

void StageRunner::forward(int64_t micro_batch) {
  LH_ASSERT(!loss_.defined(), "micro batch {} started before the last one's backward",
            micro_batch);
  data::TokenBatch& batch = batches_->at(static_cast<size_t>(micro_batch));
  current_ =
      infer::micro_batch(batch, 0, batch.num_sequences, options_.device, options_.fused);
  current_.context.weight_gradients = weight_gradients_;
  if (options_.recompute) {
    current_.context.run_block = [](int64_t, const nn::BlockFunction& block,
                                    const at::Tensor& x) {
      return parallel::recompute(block, x);
    };
  }
  const at::Tensor hidden = model_.hidden(current_.tokens, current_.context);
  const auto result = model_.loss(hidden, current_.targets, current_.context,
                                  {scale_, options_.z_loss, options_.fused});
  loss_ = result.loss;
  cross_entropy_sum_ += result.cross_entropy_sum;
}

void StageRunner::backward(int64_t micro_batch) {
  LH_ASSERT(loss_.defined(), "backward of micro batch {} without its forward",
            micro_batch);
  torch::autograd::backward({loss_}, {});
  loss_.reset();
}

}  // namespace longhaul::train
