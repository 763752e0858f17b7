#include "longhaul/train/stage_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "longhaul/base/error.h"
#include "longhaul/parallel/recompute/recompute.h"

namespace longhaul::train {

StageRunner::StageRunner(const std::vector<Chunk>& chunks,
                         parallel::DataParallel& replicas, StageOptions options)
    : chunks_(chunks), units_(replicas), options_(std::move(options)) {}

void StageRunner::begin_step(std::vector<data::TokenBatch>& batches, double scale) {
  batches_ = &batches;
  scale_ = scale;
  cross_entropy_sum_ = 0.0;
}

void StageRunner::begin_plan(const PipelinePlan& plan, int stage) {
  LH_ASSERT(plan.training == at::GradMode::is_enabled(), "a plan {} gradients",
            plan.training ? "with" : "without");
  units_.begin(plan_units(plan, stage, options_.units));
}

void StageRunner::clear() {
  flights_.clear();
  units_.abandon();
}

std::vector<int64_t> StageRunner::boundary_shape(int64_t micro_batch) {
  const data::TokenBatch& batch = batches_->at(static_cast<size_t>(micro_batch));
  return {batch.num_sequences * batch.seq_len / options_.token_parts,
          options_.hidden_size};
}

void StageRunner::capture(int64_t layer, int64_t micro_batch, const at::Tensor& y) {
  Capture* sink = options_.capture;
  if (sink == nullptr || !sink->active()) return;
  const std::string name =
      layer == nn::kEmbeddingLayer ? "embedding" : "layers." + std::to_string(layer);
  sink->activation("activation", name, micro_batch, y);
  if (!y.requires_grad()) return;
  y.register_hook([sink, name, micro_batch](const at::Tensor& grad) {
    sink->activation("activation_gradient", name, micro_batch, grad);
  });
}

at::Tensor StageRunner::run_block(const Chunk& chunk, int64_t micro_batch, int64_t layer,
                                  const ops::WeightGradientsPtr& queue,
                                  const nn::BlockFunction& block, const at::Tensor& x) {
  const bool embedding = layer == nn::kEmbeddingLayer;
  const bool again = !embedding && layer < options_.recompute_end;
  const nn::BlockFunction run = [&](const at::Tensor& in) {
    at::Tensor y = again ? parallel::recompute(block, in, options_.offload) : block(in);
    capture(layer, micro_batch, y);
    if (options_.observer != nullptr) options_.observer->layer(layer, y);
    return y;
  };
  const int unit = embedding ? chunk.units.embedding : chunk.units.block(layer);
  return units_.run(unit, embedding, queue, run, x);
}

StageRunner::Flight& StageRunner::begin_flight(int64_t chunk, int64_t micro_batch,
                                               const at::Tensor& input) {
  const auto [place, fresh] = flights_.try_emplace({chunk, micro_batch});
  LH_ASSERT(fresh, "chunk {}: micro batch {} is under way already", chunk, micro_batch);
  Flight& flight = place->second;
  data::TokenBatch& batch = batches_->at(static_cast<size_t>(micro_batch));
  flight.batch =
      infer::micro_batch(batch, 0, batch.num_sequences, options_.device, options_.fused);
  flight.weight_gradients = std::make_shared<ops::WeightGradients>();
  flight.weight_gradients->set_immediate(!options_.units.delayed);
  flight.weight_gradients->set_after_each(options_.drive);
  nn::ForwardContext& context = flight.batch.context;
  context.weight_gradients = flight.weight_gradients;
  context.attention = options_.attention;
  context.region = options_.region;
  context.selective_recompute = options_.selective_recompute;
  context.run_block = [this, chunk, micro_batch, queue = flight.weight_gradients](
                          int64_t layer, const nn::BlockFunction& block,
                          const at::Tensor& x) {
    return run_block(chunks_[static_cast<size_t>(chunk)], micro_batch, layer, queue,
                     block, x);
  };
  flight.input = input;
  if (input.defined() && at::GradMode::is_enabled()) {
    flight.input = input.detach().requires_grad_();
  }
  return flight;
}

at::Tensor StageRunner::loss(const Chunk& chunk, const Flight& flight,
                             const at::Tensor& hidden) {
  const bool training = at::GradMode::is_enabled();
  const int unit = chunk.units.head;
  units_.use(unit);
  if (training) units_.open(unit);
  if (options_.observer != nullptr) {
    options_.observer->head(*chunk.model, hidden, flight.batch.context);
  }
  ops::LossHeadOptions options;
  options.scale = scale_;
  options.z_loss = options_.z_loss;
  options.fused = options_.fused;
  const auto result =
      chunk.model->loss(hidden, flight.batch.targets, flight.batch.context, options);
  cross_entropy_sum_ += result.cross_entropy_sum;
  // The head's gradients are formed in its forward; a tied embedding's go on growing.
  if (training && unit != chunk.units.embedding) units_.close(unit);
  units_.used(unit);
  return result.loss;
}

at::Tensor StageRunner::forward(int64_t chunk, int64_t micro_batch,
                                const at::Tensor& input) {
  const Chunk& here = chunks_.at(static_cast<size_t>(chunk));
  Flight& flight = begin_flight(chunk, micro_batch, input);
  at::Tensor out = here.model->hidden(
      input.defined() ? flight.input : flight.batch.tokens, flight.batch.context);
  if (here.units.spec.head) out = loss(here, flight, out);
  if (at::GradMode::is_enabled()) {
    flight.root = torch::autograd::impl::gradient_edge(out);
  } else {
    flights_.erase({chunk, micro_batch});
  }
  return here.units.spec.head ? at::Tensor() : out.detach();
}

at::Tensor StageRunner::backward(int64_t chunk, int64_t micro_batch,
                                 const at::Tensor& grad) {
  const Chunk& here = chunks_.at(static_cast<size_t>(chunk));
  Flight& flight = flights_.at({chunk, micro_batch});
  const at::Tensor start =
      grad.defined() ? grad : at::ones({}, at::TensorOptions(options_.device));
  torch::autograd::Engine::get_default_engine().execute(
      {std::exchange(flight.root, {})}, {start}, /*keep_graph=*/false,
      /*create_graph=*/false, /*accumulate_grad=*/true, {});
  if (here.units.spec.embedding) units_.close(here.units.embedding);
  return flight.input.defined() ? flight.input.grad() : at::Tensor();
}

void StageRunner::weight_gradients(int64_t chunk, int64_t micro_batch) {
  flights_.at({chunk, micro_batch}).weight_gradients->drain();
  flights_.erase({chunk, micro_batch});
}

}  // namespace longhaul::train
