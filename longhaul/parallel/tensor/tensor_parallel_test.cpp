// A second family, declared here with its own table: nothing in the library knows it.
#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>

#include <atomic>

#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/loss_head.h"
#include "longhaul/ops/attention.h"
#include "longhaul/parallel/recompute/recompute.h"
#include "longhaul/parallel/tensor/twin_test_support.h"

namespace longhaul::parallel {
namespace {

using twin::Case;
using twin::Fault;

constexpr int64_t kHidden = 40, kInner = 49, kLayers = 2;

/// x + attention(n) + swiglu(n) + out(relu(in n)^2), n = norm(x): a parallel residual and
/// one more pair of projections.
struct WideBlock {
  explicit WideBlock(const std::string& name, int64_t layer)
      : norm(name + ".ln", kHidden, 1e-5),
        attention(name + ".attn", {kHidden, 6, 2, 8, 0.02}, layer),
        feed_forward(name + ".glu", kHidden, kInner, 0.02),
        in(name + ".in", kHidden, 31, 0.02),
        out(name + ".out", 31, kHidden, 0.02) {}

  at::Tensor forward(const at::Tensor& x, const ops::RopeTable& rope,
                     const nn::ForwardContext& context) const {
    const at::Tensor n = norm.forward(x, context);
    const at::Tensor inner = at::relu(in.forward(context.enter(n), context));
    return x + attention.forward(n, rope, context) + feed_forward.forward(n, context) +
           context.leave(out.forward(inner * inner, context));
  }

  nn::RmsNorm norm;
  nn::Attention attention;
  nn::FeedForward feed_forward;
  nn::Linear in, out;
};

struct WideModel {
  WideModel() {
    for (int64_t i = 0; i < kLayers; ++i) {
      blocks.emplace_back("h." + std::to_string(i), i);
    }
    RopeConfig config;
    config.theta = 10000.0;
    rope = ops::make_rope_table(config, 8, twin::kSeq, at::kCPU);
  }
  nn::Embedding embedding{"wte", 101, kHidden, 0.02};
  std::vector<WideBlock> blocks;
  nn::RmsNorm norm{"ln_f", kHidden, 1e-5};
  nn::Linear head{"out_head", kHidden, 101, 0.02};
  ops::RopeTable rope;
};

twin::Family make_wide() {
  const auto model = std::make_shared<WideModel>();
  twin::Family family;
  family.owner = model;
  auto& all = family.parameters;
  all.push_back(model->embedding.weight());
  for (const WideBlock& block : model->blocks) {
    all.push_back(block.norm.weight());
    for (const auto& p : block.attention.parameters()) all.push_back(p);
    for (const auto& p : block.feed_forward.parameters()) all.push_back(p);
    all.push_back(block.in.weight());
    all.push_back(block.out.weight());
  }
  all.push_back(model->norm.weight());
  all.push_back(model->head.weight());
  family.hidden = [m = model.get()](const at::Tensor& ids,
                                    const nn::ForwardContext& context) {
    at::Tensor x = m->embedding.forward(ids, context);
    for (const WideBlock& block : m->blocks) {
      const auto run = [&](const at::Tensor& in) {
        return block.forward(in, m->rope, context);
      };
      x = context.run_block ? context.run_block(0, run, x) : run(x);
    }
    return m->norm.forward(x, context);
  };
  family.loss = [m = model.get()](const at::Tensor& hidden, const at::Tensor& targets,
                                  const nn::ForwardContext& context,
                                  const ops::LossHeadOptions& options) {
    return nn::loss_head(hidden, m->head.weight(), targets, context, options);
  };
  return family;
}

twin::Model wide() {
  using Unit = ShardUnit;
  return {make_wide,
          {{"*.attn.q_proj.weight", 0, Unit::QueryHeads},
           {"*.attn.k_proj.weight", 0, Unit::KeyHeads},
           {"*.attn.v_proj.weight", 0, Unit::KeyHeads},
           {"*.attn.o_proj.weight", 1, Unit::QueryHeads},
           {"*.glu.gate_proj.weight", 0, Unit::Elements},
           {"*.glu.up_proj.weight", 0, Unit::Elements},
           {"*.glu.down_proj.weight", 1, Unit::Elements},
           {"*.in.weight", 0, Unit::Elements},
           {"*.out.weight", 1, Unit::Elements},
           {"wte.weight", 0, Unit::Vocabulary},
           {"out_head.weight", 0, Unit::Vocabulary}}};
}

TEST(TensorParallel, ATableSufficesForAFamilyOfItsOwn) {
  twin::check_against_twin(wide());
}

TEST(TensorParallel, PlantedFaultsAreSeen) {
  const twin::Model model = wide();
  const twin::Result twin = run(model, Case{});
  const auto worst = [&](int tp, bool sequence, Fault fault) {
    Case c;
    c.tp = tp;
    c.sequence = sequence;
    c.fault = fault;
    return compare(run(model, c), twin);
  };
  const auto norm = worst(2, true, Fault::NormSum);
  EXPECT_GT(norm.worst, 0.1) << norm.name;
  EXPECT_NE(norm.name.find("ln"), std::string::npos) << norm.name;
  const auto key = worst(4, false, Fault::KeySum);
  EXPECT_GT(key.worst, 0.1) << key.name;
  EXPECT_TRUE(key.name.find("k_proj") != std::string::npos ||
              key.name.find("v_proj") != std::string::npos)
      << key.name;
  EXPECT_GT(worst(2, false, Fault::EnterSum).worst, 0.1);
}

TEST(TensorParallel, DeferredWeightGradientsAreBitwiseTheImmediateOnes) {
  const twin::Model model = wide();
  for (const bool sequence : {false, true}) {
    Case c;
    c.tp = 3;
    c.sequence = sequence;
    const twin::Result now = run(model, c);
    c.deferred = true;
    expect_same_bits(run(model, c), now, describe(c));
  }
}

TEST(SelectiveRecompute, IsBitwiseTheSame) {
  const twin::Model model = wide();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const bool fused : {true, false}) {
      for (const int tp : {1, 2, 4}) {
        Case c;
        c.tp = tp;
        c.sequence = tp == 2;
        c.type = type;
        c.fused = fused;
        const twin::Result plain = run(model, c);
        c.selective = true;
        expect_same_bits(run(model, c), plain, describe(c));
        c.deferred = true;
        expect_same_bits(run(model, c), plain, describe(c) + " deferred");
      }
    }
  }
}

/// A replaced attention core: counted, and its results watched.
TEST(SelectiveRecompute, RunsAReplacedCoreOnceMoreAndKeepsNoResult) {
  const twin::Model model = wide();
  const twin::Result plain = run(model, Case{});
  for (const bool selective : {false, true}) {
    int calls = 0, alive_after_forward = 0;
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> results;
    Case c;
    c.selective = selective;
    c.attention = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& start, bool fused) {
      if (++calls == kLayers + 1) {  // the backward has begun
        for (const auto& result : results) alive_after_forward += !result.expired();
      }
      const at::Tensor y = ops::attention(q, k, v, start, fused);
      results.push_back(y.storage().getWeakStorageImpl());
      return y;
    };
    expect_same_bits(run(model, c), plain, "replaced core");
    EXPECT_EQ(calls, selective ? 2 * kLayers : kLayers);
    EXPECT_EQ(alive_after_forward, 0);
    for (const auto& result : results) EXPECT_TRUE(result.expired());
  }
}

TEST(TensorParallel, RecomputedBlocksAreBitwiseTheSame) {
  // The regions' collectives run again in the backward, in the same order on all ranks.
  Case c;
  c.tp = 3;
  c.sequence = true;
  const twin::Result plain = run(wide(), c);
  c.run_block = [](int64_t, const nn::BlockFunction& block, const at::Tensor& x) {
    return recompute(block, x);
  };
  expect_same_bits(run(wide(), c), plain, "recompute");
}

}  // namespace
}  // namespace longhaul::parallel
