// Compares a norm over heads that several ranks share with the norm on one rank.
#include "longhaul/ops/wide_norm.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/parallel/recompute/recompute.h"
#include "longhaul/parallel/tensor/region.h"
#include "tests/support/apply_ranks.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/parameters.h"

namespace longhaul::parallel {
namespace {

constexpr int64_t kWideTokens = 24, kWideHidden = 32, kWideHeadDim = 8;

struct WideCase {
  int tp;
  int64_t query_heads, key_heads;
  at::ScalarType type = at::kFloat;
  bool sequence = false;
  bool recomputed = false;
};

/// A fault that is planted on one rank.
enum class WideFault { None, Sum, Replicas };

using WideTensors = std::map<std::string, at::Tensor>;

/// Returns the input, the gradient of the result and the weights that all ranks begin
/// with.
WideTensors values_of(const WideCase& c) {
  at::manual_seed(17);
  const int64_t q = c.query_heads * kWideHeadDim, k = c.key_heads * kWideHeadDim;
  const auto matrix = [](int64_t rows, int64_t columns) {
    return at::randn({rows, columns}).mul_(0.25);
  };
  const auto norm = [](int64_t width) { return at::randn({width}).mul_(0.3).add_(1.0); };
  WideTensors values{{"x", at::randn({kWideTokens, kWideHidden})},
                     {"dy", at::randn({kWideTokens, kWideHidden})},
                     {"q", matrix(q, kWideHidden)},
                     {"k", matrix(k, kWideHidden)},
                     {"v", matrix(k, kWideHidden)},
                     {"q_norm", norm(q)},
                     {"k_norm", norm(k)},
                     {"o", matrix(kWideHidden, q)}};
  for (auto& [name, value] : values) value = value.to(c.type);
  return values;
}

/// Projections, norms and attention as in OLMo 2. Values do not depend on which part a
/// rank has.
struct WideLayer {
  WideLayer(const WideCase& c, const WideTensors& whole, int64_t ranks, int64_t rank) {
    const format::Heads heads{c.query_heads, c.key_heads};
    const format::ShardSplit query{format::ShardUnit::QueryHeads, 0, heads},
        key{format::ShardUnit::KeyHeads, 0, heads};
    const int64_t q = c.query_heads * kWideHeadDim, k = c.key_heads * kWideHeadDim;
    parameters = {tensor::make_parameter("q", {q, kWideHidden}, {}, query),
                  tensor::make_parameter("k", {k, kWideHidden}, {}, key),
                  tensor::make_parameter("v", {k, kWideHidden}, {}, key),
                  tensor::make_parameter("q_norm", {q}, {}, query),
                  tensor::make_parameter("k_norm", {k}, {}, key),
                  tensor::make_parameter("o", {kWideHidden, q}, {},
                                         format::ShardSplit{query.unit, 1, heads})};
    plan = {ranks, c.sequence};
    shards = apply_shard_plan(parameters, plan, rank);
    gradients->set_immediate(true);
    for (const tensor::ParameterPtr& p : parameters) {
      const at::Tensor values = of_rank(whole.at(p->name()), p).contiguous();
      p->set_frozen(false);
      p->bind(values, at::zeros(values.sizes(), at::kFloat));
    }
  }
  static at::Tensor of_rank(const at::Tensor& whole, const tensor::ParameterPtr& p) {
    const format::TensorSlice& s = p->slice();
    at::Tensor part = whole;
    for (int64_t d = 0; d < whole.dim(); ++d) {
      const auto i = static_cast<size_t>(d);
      part = part.narrow(d, s.offset[i], s.extent[i]);
    }
    return part;
  }

  at::Tensor forward(const at::Tensor& x, const nn::SplitRegion* region,
                     WideFault fault) const {
    const ops::LinearInput in = region ? region->enter(x) : ops::LinearInput(x);
    const auto project = [&](size_t i) {
      return ops::linear(in, parameters[i], gradients)
          .view({kWideTokens, -1, kWideHeadDim});
    };
    ops::WideNorms norms{parameters[3], parameters[4], 1e-3};
    if (region != nullptr) {
      norms.combine = [region, fault](at::Tensor& sums) {
        if (fault != WideFault::Sum) region->sum_features(sums);
      };
    }
    const ops::Heads h =
        ops::wide_norm_heads({project(0), project(1), project(2)}, norms);
    const at::Tensor y =
        ops::attention(h.q.unsqueeze(0), {h.k.unsqueeze(0), h.v.unsqueeze(0)}, {}, true);
    const at::Tensor out =
        ops::linear(y.view({kWideTokens, -1}), parameters[5], gradients);
    return region ? region->leave(out) : out;
  }

  std::vector<tensor::ParameterPtr> parameters;
  std::vector<layout::ParameterShard> shards;
  layout::ShardPlan plan;
  ops::WeightGradientsPtr gradients = std::make_shared<ops::WeightGradients>();
};

/// Returns the results and gradients of this rank's parts.
WideTensors run_layer(const WideCase& c, const WideTensors& values,
                      const WideLayer& layer, const nn::SplitRegion* region,
                      WideFault fault) {
  at::set_num_threads(1);
  const auto mine = [&](const at::Tensor& rows) {
    return region ? region->outside(rows).contiguous() : rows;
  };
  const at::Tensor x = ops::leaf(mine(values.at("x")));
  const BlockFunction block = [&](const nn::Tensors& in) {
    return nn::Tensors{layer.forward(in[0], region, fault)};
  };
  const at::Tensor y = c.recomputed ? recompute(block, {x})[0] : block({x})[0];
  ops::backward(y, mine(values.at("dy")));
  return {{"y", y.detach()}, {"dx", x.grad()}};
}

/// Returns the parts of all ranks put together.
WideTensors on_ranks(const WideCase& c, WideFault fault) {
  const WideTensors values = values_of(c);
  WideTensors all;
  std::mutex mutex;
  comm::run_fake_ranks(c.tp, [&](const std::shared_ptr<comm::Communicator>& world) {
    const WideLayer layer(c, values, world->size(), world->rank());
    const TensorRegion region(*world, c.sequence);
    const WideTensors mine = run_layer(c, values, layer, &region, fault);
    const layout::KeyReplica replica =
        layout::key_replica(c.key_heads, layer.plan.rank(world->rank()));
    const auto holders = world->split(replica.color, replica.index, "key replicas");
    for (size_t i = 0; i < layer.parameters.size(); ++i) {
      if (layer.shards[i].sum != layout::GradientSum::KeyReplicas) continue;
      const at::Tensor grad = layer.parameters[i]->grad();
      if (fault == WideFault::Replicas) continue;
      holders->all_reduce_wait({grad.data_ptr(), grad.numel(), format::DType::F32},
                               comm::ReduceOp::Sum);
    }
    const std::lock_guard lock(mutex);
    for (const auto& [name, part] : mine) {
      at::Tensor& whole = all[name];
      if (!whole.defined()) whole = at::zeros({kWideTokens, kWideHidden}, part.options());
      region.outside(whole).copy_(part);
    }
    for (size_t i = 0; i < layer.parameters.size(); ++i) {
      const tensor::ParameterPtr& p = layer.parameters[i];
      at::Tensor& whole = all[p->name()];
      if (!whole.defined()) whole = at::zeros(p->slice().global_shape);
      if (layer.shards[i].counted) WideLayer::of_rank(whole, p).copy_(p->grad());
    }
  });
  return all;
}

WideTensors on_one(const WideCase& c) {
  const WideTensors values = values_of(c);
  const WideLayer layer(c, values, 1, 0);
  WideTensors all = run_layer(c, values, layer, nullptr, WideFault::None);
  for (const tensor::ParameterPtr& p : layer.parameters) all[p->name()] = p->grad();
  return all;
}

double wide_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

/// Cases by number of ranks, query heads and key heads. The key heads divide evenly over
/// the ranks, or unevenly, or there are fewer key heads than ranks, so that several ranks
/// hold the same head.
const std::vector<WideCase> kWideCases = {{2, 4, 4}, {2, 6, 3}, {2, 2, 1}, {3, 6, 2},
                                          {4, 4, 4}, {4, 8, 2}, {4, 5, 1}, {4, 6, 2}};

TEST(WideNormOnRanks, EqualsTheNormOnOneRank) {
  for (WideCase c : kWideCases) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const bool sequence : {false, true}) {
        SCOPED_TRACE(fmt::format("tp {}, {} query heads, {} key heads, {}, {}", c.tp,
                                 c.query_heads, c.key_heads,
                                 type == at::kFloat ? "fp32" : "bf16",
                                 sequence ? "sequence" : "all tokens"));
        c.type = type;
        c.sequence = sequence;
        c.recomputed = sequence;
        const WideTensors want = on_one(c), got = on_ranks(c, WideFault::None);
        for (const auto& [name, tensor] : want) {
          EXPECT_LT(wide_distance(got.at(name), tensor), type == at::kFloat ? 2e-6 : 2e-2)
              << name;
        }
      }
    }
  }
}

TEST(WideNormOnRanks, PlantedFaultsAreFarOff) {
  const WideCase c{4, 8, 2};
  const WideTensors want = on_one(c);
  const auto error = [&](WideFault fault, const char* name) {
    return wide_distance(on_ranks(c, fault).at(name), want.at(name));
  };
  for (const char* name : {"y", "dx", "q", "q_norm", "k", "k_norm"}) {
    EXPECT_GT(error(WideFault::Sum, name), 0.05) << name;
  }
  EXPECT_GT(error(WideFault::Replicas, "k_norm"), 0.05);
}

TEST(WideNormOnRanks, MovesTwoNumbersATokenInEachDirection) {
  const WideCase c{2, 4, 2};
  comm::run_fake_ranks(c.tp, [&](const std::shared_ptr<comm::Communicator>& world) {
    const TensorRegion region(*world, false);
    int sums = 0;
    const ops::WideNorms norms{ops::bound(at::ones({16})), ops::bound(at::ones({8})),
                               1e-3, [&](at::Tensor& both) {
                                 ++sums;
                                 EXPECT_EQ(both.sizes(),
                                           (std::vector<int64_t>{2, kWideTokens}));
                                 EXPECT_EQ(both.scalar_type(), at::kFloat);
                                 region.sum_features(both);
                               }};
    const at::Tensor q = ops::leaf(at::ones({kWideTokens, 2, 8})),
                     k = ops::leaf(at::ones({kWideTokens, 1, 8}));
    const ops::Heads out = ops::wide_norm_heads({q, k, k}, norms);
    EXPECT_EQ(sums, 1);
    ops::backward(out.q, at::ones_like(out.q));
    EXPECT_EQ(sums, 2);
  });
}

}  // namespace
}  // namespace longhaul::parallel
