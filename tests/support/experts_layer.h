#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "longhaul/nn/experts.h"
#include "longhaul/tensor/init.h"
#include "tests/support/apply_ranks.h"
#include "tests/support/network_forms.h"
#include "tests/support/parameters.h"

// A small mixture of experts, whose layers tests make on ranks of ep and tp.

namespace longhaul::testing::experts {

inline constexpr int64_t kSequences = 4, kLength = 8, kTokens = kSequences * kLength;
inline constexpr int64_t kHidden = 24, kInner = 12, kExperts = 8, kChosen = 3;

inline families::Experts form_of(bool shared) {
  families::Experts form;
  form.router = {"router", kExperts};
  form.top_k = kChosen;
  for (int64_t e = 0; e < kExperts; ++e) {
    form.experts.push_back(nn::testing::gated_form("experts." + std::to_string(e)));
  }
  if (shared) form.shared = nn::testing::gated_form("shared");
  return form;
}

inline UnitDescription describe(bool shared) {
  using Unit = format::ShardUnit;
  UnitDescription unit;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns,
                       format::ShardSplit split) {
    unit.parameters.push_back({name + ".weight", {rows, columns}, {}, split});
  };
  const auto add_gated = [&](const std::string& name) {
    add(name + ".gate_proj", kInner, kHidden, {Unit::Elements, 0});
    add(name + ".up_proj", kInner, kHidden, {Unit::Elements, 0});
    add(name + ".down_proj", kHidden, kInner, {Unit::Elements, 1});
  };
  add("router", kExperts, kHidden, {Unit::None, 0});
  for (int64_t e = 0; e < kExperts; ++e) add_gated("experts." + std::to_string(e));
  if (shared) add_gated("shared");
  return unit;
}

/// A layer of experts on one rank of `ep` x `tp`, with its own values and gradients.
struct Layer {
  Layer(bool shared, int ep, int ep_index, int tp = 1, int tp_index = 0,
        bool sequence = false, at::ScalarType type = at::kFloat)
      : parameters({describe(shared)}),
        all(parameters.units().front().parameters),
        experts(parameters, form_of(shared), 0) {
    parallel::apply_shard_plan(all, {tp, sequence}, tp_index);
    int64_t number = 0;
    for (const tensor::ParameterPtr& p : all) {
      format::TensorSlice slice = p->slice();
      const bool of_expert = p->name().starts_with("experts.");
      if (of_expert && number++ / 3 * ep / kExperts != ep_index) slice.extent[0] = 0;
      p->set_slice(slice);
      at::Tensor values = at::empty(slice.extent, at::kFloat);
      tensor::initial_values(slice, {Init::Kind::Normal, 0.4}, 1, 0, values.numel(),
                             values.data_ptr<float>());
      p->set_frozen(false);
      p->bind(values.to(type), at::zeros_like(values));
    }
    context.batch.rows = kSequences / ep;
    context.batch.seq = kLength;
    context.weight_gradients = std::make_shared<ops::WeightGradients>();
    context.losses = &losses;
    context.router.balance = BalanceKind::Sequence;
    context.router.balance_term = 0;
    context.router.z_term = 1;
    context.router.routers = 1;
  }

  at::Tensor run(const at::Tensor& x, const at::Tensor& dy) {
    const at::Tensor in = ops::leaf(x);
    const at::Tensor y = experts.forward(in, context);
    ops::backward(y, dy);
    dx = in.grad();
    return y.detach();
  }

  tensor::ParameterSet parameters;
  std::vector<tensor::ParameterPtr> all;
  nn::Experts experts;
  nn::Losses losses{{0.02 / kTokens, 0.01 / kTokens}};
  nn::ForwardContext context;
  at::Tensor dx;
};

inline at::Tensor random(uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({kTokens, kHidden});
}

}  // namespace longhaul::testing::experts
