#include "longhaul/session/stage_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "longhaul/base/error.h"
#include "longhaul/parallel/recompute/recompute.h"
#include "longhaul/session/batch.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::session {
namespace {

std::string unit_name(const layout::RankUnits& units, int unit) {
  for (const layout::ChunkUnits& chunk : units.chunks) {
    const int block = unit - chunk.first_block;
    if (unit == chunk.embedding) return "embedding";
    if (unit == chunk.head || unit == chunk.head_layers) return "head";
    if (block >= 0 && block < chunk.spec.end_layer - chunk.spec.first_layer) {
      return fmt::format("layer {}", chunk.spec.first_layer + block);
    }
  }
  return fmt::format("unit {}", unit);
}

}  // namespace

StageRunner::StageRunner(const std::vector<Chunk>& chunks,
                         parallel::DataParallel& replicas, StageOptions options)
    : chunks_(chunks), units_(replicas), options_(std::move(options)) {
  if (options_.offload) offload_ = std::make_shared<parallel::Offload>();
  units_.set_watcher([this](int unit, bool backward, bool begins) {
    if (begins && options_.begin_unit) options_.begin_unit();
    if (options_.profile == nullptr || !options_.profile->active()) return;
    const std::string pass = backward ? " backward" : "";
    options_.profile->block(unit_name(options_.units, unit) + pass, begins);
  });
}

void StageRunner::begin_step(std::vector<data::TokenBatch>& batches,
                             std::vector<double> scales) {
  batches_ = &batches;
  losses_ = nn::Losses(std::move(scales));
  losses_.z_loss = options_.z_loss;
  const at::Tensor& shares = options_.context.router.shares;
  if (!shares.defined()) return;
  if (!loads_.counts.defined()) {
    loads_.counts = at::zeros_like(shares, at::kLong);
    loads_.entropy = at::zeros({shares.size(0)}, shares.options());
  }
  loads_.counts.zero_();
  loads_.entropy.zero_();
}

at::Tensor StageRunner::device_router_loads() const {
  const bool wide = tensor::limits_of(options_.device).wide_types;
  const at::TensorOptions options =
      at::TensorOptions(wide ? at::kDouble : at::kFloat).device(options_.device);
  if (!loads_.counts.defined()) return at::zeros({0}, options);
  return at::cat(
      {loads_.counts.reshape(-1).to(at::kDouble), loads_.entropy.to(at::kDouble)});
}

void StageRunner::begin_plan(const layout::PipelinePlan& plan, int stage) {
  LH_ASSERT(plan.training == at::GradMode::is_enabled(), "a plan {} gradients",
            plan.training ? "with" : "without");
  // Every step has the same plan. It is kept, since making it takes time with 80 layers
  // and 128 micro batches.
  if (planned_actions_ != plan.of(stage)) {
    planned_ = layout::plan_units(plan, stage, options_.units);
    planned_actions_ = plan.of(stage);
  }
  units_.begin(planned_);
}

void StageRunner::clear() {
  flights_.clear();
  units_.abandon();
}

parallel::Shapes StageRunner::boundary_shapes(int64_t micro_batch) {
  const data::TokenBatch& batch = batches_->at(static_cast<size_t>(micro_batch));
  const int64_t rows = batch.num_sequences * batch.seq_len / options_.token_parts;
  parallel::Shapes shapes;
  for (const int64_t width : options_.passed) shapes.push_back({rows, width});
  return shapes;
}

void StageRunner::capture(const std::string& name, int64_t micro_batch,
                          const at::Tensor& y) {
  Capture* sink = options_.capture;
  if (sink == nullptr || !sink->active()) return;
  sink->activation("activation", name, micro_batch, y);
  if (!y.requires_grad()) return;
  y.register_hook([sink, name, micro_batch](const at::Tensor& grad) {
    sink->activation("activation_gradient", name, micro_batch, grad);
  });
}

nn::Tensors StageRunner::recompute(const models::Model& model, int64_t layer,
                                   const nn::Tensors& x,
                                   const nn::ForwardContext& context) {
  // The recomputation in the backward must not add to the loss what the forward has
  // added.
  const auto counted_once = [this, &model, layer, &context,
                             ran = false](const nn::Tensors& in) mutable {
    losses_.again = std::exchange(ran, true);
    nn::Tensors y = model.block(layer, in, context);
    losses_.again = false;
    return y;
  };
  return parallel::recompute(counted_once, x, offload_);
}

nn::Tensors StageRunner::run_units(const Chunk& chunk, int64_t micro_batch,
                                   const Flight& flight) {
  const models::Model& model = *chunk.model;
  const layout::ChunkUnits& units = chunk.units;
  const nn::ForwardContext& context = flight.context;
  const ops::WeightGradientsPtr& queue = context.weight_gradients;
  ForwardObserver* observer = options_.observer;
  nn::Tensors x = flight.input;
  if (units.spec.embedding) {
    units_.enter(units.embedding, {}, queue);
    x = model.embed(context);
    capture("embedding", micro_batch, x[0]);
    if (observer != nullptr) observer->embedding(x[0]);
    x = units_.leave(units.embedding, x, queue, /*embedding=*/true);
  }
  for (int64_t layer = units.spec.first_layer; layer < units.spec.end_layer; ++layer) {
    x = units_.enter(units.block(layer), x, queue);
    x = layer < options_.recompute_end ? recompute(model, layer, x, context)
                                       : model.block(layer, x, context);
    capture("layers." + std::to_string(layer), micro_batch, x[0]);
    if (observer != nullptr) observer->layer(layer, x[0], context);
    x = units_.leave(units.block(layer), x, queue);
  }
  if (!units.spec.head) return x;
  if (units.head_layers < 0) return model.head(x, context);
  x = units_.enter(units.head_layers, x, queue);
  return units_.leave(units.head_layers, model.head(x, context), queue);
}

StageRunner::Flight& StageRunner::begin_flight(int64_t chunk, int64_t micro_batch,
                                               const nn::Tensors& input) {
  const auto [place, fresh] = flights_.try_emplace({chunk, micro_batch});
  LH_ASSERT(fresh, "chunk {}: micro batch {} is under way already", chunk, micro_batch);
  Flight& flight = place->second;
  data::TokenBatch& batch = batches_->at(static_cast<size_t>(micro_batch));
  nn::ForwardContext& context = flight.context;
  context = options_.context;
  context.batch =
      batch_of(batch, 0, batch.num_sequences, options_.device, options_.masks_documents);
  context.losses = &losses_;
  context.weight_gradients = std::make_shared<ops::WeightGradients>();
  context.weight_gradients->set_immediate(!options_.units.delayed);
  context.weight_gradients->set_after_each(options_.drive);
  if (options_.caches != nullptr) {
    context.cache = &options_.caches->at(static_cast<size_t>(chunk));
  }
  if (options_.context.router.routers > 0) {
    context.router.pass = std::make_shared<nn::RouterPass>();
    // Only training reports what its routers did.
    context.router.terms_read = at::GradMode::is_enabled();
    if (context.router.terms_read) context.router.loads = &loads_;
  }
  flight.input = input;
  if (!at::GradMode::is_enabled()) {
    context.dropout_key.reset();
  } else {
    nn::Batch& drops = context.batch;
    if (context.dropout_key && !drops.sequence_of.defined()) {
      drops.sequence_of = drops.sequences.repeat_interleave(drops.seq);
    }
    for (at::Tensor& tensor : flight.input) tensor = tensor.detach().requires_grad_();
  }
  return flight;
}

at::Tensor StageRunner::loss(const Chunk& chunk, const Flight& flight,
                             const nn::Tensors& hidden) {
  const bool training = at::GradMode::is_enabled();
  const int unit = chunk.units.head;
  units_.use(unit);
  if (training) units_.open(unit);
  ForwardObserver* observer = options_.observer;
  if (observer != nullptr) observer->head(*chunk.model, hidden, flight.context);
  at::Tensor loss;
  const bool taken = observer != nullptr && observer->takes_targets();
  if (!flight.context.batch.targets.empty() && !taken) {
    loss = chunk.model->loss(hidden, flight.context);
  }
  // The gradients of the output matrix are formed in its forward. The backward still adds
  // to the gradients of a tied embedding, and of a unit that has layers as well.
  const bool grows = unit == chunk.units.embedding || unit == chunk.units.head_layers;
  if (training && !grows) units_.close(unit);
  units_.used(unit);
  return loss;
}

nn::Tensors StageRunner::forward(int64_t chunk, int64_t micro_batch,
                                 const nn::Tensors& input) {
  const Chunk& here = chunks_.at(static_cast<size_t>(chunk));
  Flight& flight = begin_flight(chunk, micro_batch, input);
  nn::Tensors out = run_units(here, micro_batch, flight);
  if (here.units.spec.head) out = {loss(here, flight, out)};
  if (at::GradMode::is_enabled()) {
    for (const at::Tensor& tensor : out) {
      flight.roots.push_back(torch::autograd::impl::gradient_edge(tensor));
    }
    if (options_.after_forward) options_.after_forward();
  } else {
    flights_.erase({chunk, micro_batch});
  }
  if (here.units.spec.head) return {};
  for (at::Tensor& tensor : out) tensor = tensor.detach();
  return out;
}

nn::Tensors StageRunner::backward(int64_t chunk, int64_t micro_batch,
                                  const nn::Tensors& grads) {
  const Chunk& here = chunks_.at(static_cast<size_t>(chunk));
  Flight& flight = flights_.at({chunk, micro_batch});
  const nn::Tensors starts =
      grads.empty() ? nn::Tensors{at::ones({}, at::TensorOptions(options_.device))}
                    : grads;
  torch::autograd::Engine::get_default_engine().execute(
      std::exchange(flight.roots, {}), starts, /*keep_graph=*/false,
      /*create_graph=*/false, /*accumulate_grad=*/true, {});
  if (here.units.spec.embedding) units_.close(here.units.embedding);
  nn::Tensors of_input;
  for (const at::Tensor& tensor : flight.input) of_input.push_back(tensor.grad());
  return of_input;
}

void StageRunner::weight_gradients(int64_t chunk, int64_t micro_batch) {
  flights_.at({chunk, micro_batch}).context.weight_gradients->drain();
  flights_.erase({chunk, micro_batch});
}

}  // namespace longhaul::session
