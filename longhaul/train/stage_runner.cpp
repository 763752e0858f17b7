#include "longhaul/train/stage_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "longhaul/base/error.h"
#include "longhaul/parallel/data/unit_runner.h"
#include "longhaul/parallel/recompute/recompute.h"

namespace longhaul::train {

int Chunk::block_unit(int64_t layer) const {
  return first_unit + (spec.embedding ? 1 : 0) +
         static_cast<int>(layer - spec.first_layer);
}

StageRunner::StageRunner(const std::vector<Chunk>& chunks,
                         parallel::DataParallel& replicas, StageOptions options)
    : chunks_(chunks), replicas_(replicas), options_(std::move(options)) {}

void StageRunner::begin_step(std::vector<data::TokenBatch>& batches, double scale) {
  batches_ = &batches;
  scale_ = scale;
  cross_entropy_sum_ = 0.0;
  if (!options_.hold_whole_step) return;
  for (int unit = 0; unit < replicas_.units(); ++unit) {
    replicas_.need(unit);
    if (at::GradMode::is_enabled()) replicas_.open_gradients(unit);
  }
}

void StageRunner::end_step() {
  if (at::GradMode::is_enabled()) replicas_.finish_gradients();
  if (!options_.hold_whole_step) return;
  for (int unit = 0; unit < replicas_.units(); ++unit) replicas_.release(unit);
}

void StageRunner::clear() {
  flights_.clear();
  replicas_.abandon();
}

bool StageRunner::is_last(int64_t micro_batch) const {
  return micro_batch + 1 == static_cast<int64_t>(batches_->size());
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
                                  const nn::BlockFunction& block, const at::Tensor& x) {
  const bool embedding = layer == nn::kEmbeddingLayer;
  const bool again = !embedding && layer < options_.recompute_end;
  const nn::BlockFunction run = [&](const at::Tensor& in) {
    at::Tensor y = again ? parallel::recompute(block, in, options_.offload) : block(in);
    capture(layer, micro_batch, y);
    if (options_.observer != nullptr) options_.observer->layer(layer, y);
    return y;
  };
  if (options_.hold_whole_step) return run(x);
  const StageSpec& spec = chunk.spec;
  parallel::UnitUse use;
  use.unit = embedding ? chunk.embedding_unit : chunk.block_unit(layer);
  use.next = layer + 1 < spec.end_layer
                 ? chunk.block_unit(std::max(layer + 1, spec.first_layer))
                 : chunk.head_unit;
  if (!embedding && layer > spec.first_layer) use.previous = use.unit - 1;
  use.last_micro_batch = is_last(micro_batch);
  use.weights_in_backward = !embedding;
  return parallel::run_unit(replicas_, use, run, x);
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
  flight.weight_gradients->set_immediate(!options_.defer_weight_gradients);
  flight.weight_gradients->set_after_each(options_.drive);
  nn::ForwardContext& context = flight.batch.context;
  context.weight_gradients = flight.weight_gradients;
  context.attention = options_.attention;
  context.region = options_.region;
  context.selective_recompute = options_.selective_recompute;
  context.run_block = [this, chunk, micro_batch](int64_t layer,
                                                 const nn::BlockFunction& block,
                                                 const at::Tensor& x) {
    return run_block(chunks_[static_cast<size_t>(chunk)], micro_batch, layer, block, x);
  };
  flight.input = input;
  if (input.defined() && at::GradMode::is_enabled()) {
    flight.input = input.detach().requires_grad_();
  }
  return flight;
}

at::Tensor StageRunner::loss(const Chunk& chunk, bool last, const Flight& flight,
                             const at::Tensor& hidden) {
  const bool training = at::GradMode::is_enabled();
  const bool own_unit = chunk.head_unit != chunk.embedding_unit;
  replicas_.need(chunk.head_unit);
  if (training) replicas_.open_gradients(chunk.head_unit);
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
  if (options_.hold_whole_step) return result.loss;
  // The head's gradients are formed in its forward; a tied embedding's go on growing.
  if (training && own_unit) replicas_.close_gradients(chunk.head_unit, last);
  replicas_.release(chunk.head_unit);
  return result.loss;
}

at::Tensor StageRunner::forward(int64_t chunk, int64_t micro_batch,
                                const at::Tensor& input) {
  const Chunk& here = chunks_.at(static_cast<size_t>(chunk));
  Flight& flight = begin_flight(chunk, micro_batch, input);
  at::Tensor out = here.model->hidden(
      input.defined() ? flight.input : flight.batch.tokens, flight.batch.context);
  if (here.spec.head) out = loss(here, is_last(micro_batch), flight, out);
  if (at::GradMode::is_enabled()) {
    flight.root = torch::autograd::impl::gradient_edge(out);
  } else {
    flights_.erase({chunk, micro_batch});
  }
  return here.spec.head ? at::Tensor() : out.detach();
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
  if (here.spec.embedding && !options_.hold_whole_step) {
    replicas_.close_gradients(here.embedding_unit, is_last(micro_batch));
    replicas_.release(here.embedding_unit);
  }
  return flight.input.defined() ? flight.input.grad() : at::Tensor();
}

void StageRunner::weight_gradients(int64_t chunk, int64_t micro_batch) {
  flights_.at({chunk, micro_batch}).weight_gradients->drain();
  flights_.erase({chunk, micro_batch});
}

void StageRunner::reduce_gradients(int64_t chunk) {
  if (!options_.hold_whole_step) return;  // each unit was reduced when it was complete
  const Chunk& here = chunks_.at(static_cast<size_t>(chunk));
  for (int unit = here.end_unit; unit-- > here.first_unit;) {
    replicas_.close_gradients(unit, /*last=*/true);
  }
}

}  // namespace longhaul::train
