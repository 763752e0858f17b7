// Tests tensor parallelism with a family that is described here and that the library does
// not know.
#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>

#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/loss_head.h"
#include "longhaul/nn/norm.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/parallel/recompute/recompute.h"
#include "tests/support/network_forms.h"
#include "tests/support/tensor_twins.h"

namespace longhaul::parallel {
namespace {

using twin::Case;
using twin::Fault;

constexpr int64_t kHidden = 40, kInner = 49, kLayers = 2;

/// Describes the parameters of the tests' family: their names, shapes and splits.
UnitDescription describe_wide() {
  using Unit = format::ShardUnit;
  constexpr format::Heads kHeads = {6, 2};
  UnitDescription all;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                       std::optional<format::ShardSplit> split) {
    all.parameters.push_back({name + ".weight", std::move(shape), {}, split});
  };
  add("wte", {101, kHidden}, {{Unit::Vocabulary, 0}});
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string h = "h." + std::to_string(i);
    add(h + ".ln", {kHidden}, {});
    add(h + ".attn.q_proj", {48, kHidden}, {{Unit::QueryHeads, 0, kHeads}});
    add(h + ".attn.k_proj", {16, kHidden}, {{Unit::KeyHeads, 0, kHeads}});
    add(h + ".attn.v_proj", {16, kHidden}, {{Unit::KeyHeads, 0, kHeads}});
    add(h + ".attn.o_proj", {kHidden, 48}, {{Unit::QueryHeads, 1, kHeads}});
    add(h + ".glu.gate_proj", {kInner, kHidden}, {{Unit::Elements, 0}});
    add(h + ".glu.up_proj", {kInner, kHidden}, {{Unit::Elements, 0}});
    add(h + ".glu.down_proj", {kHidden, kInner}, {{Unit::Elements, 1}});
    add(h + ".in", {31, kHidden}, {{Unit::Elements, 0}});
    add(h + ".out", {kHidden, 31}, {{Unit::Elements, 1}});
  }
  add("ln_f", {kHidden}, {});
  add("out_head", {101, kHidden}, {{Unit::Vocabulary, 0}});
  return all;
}

/// A block: x + attention(n) + swiglu(n) + out(relu(in n)^2) with n = norm(x), which is a
/// parallel residual with one more pair of projections.
struct WideBlock {
  WideBlock(tensor::ParameterSet& parameters, const std::string& name, int64_t layer)
      : norm(parameters, nn::testing::norm_form(name + ".ln")),
        attention(
            parameters,
            nn::testing::attention_form(name + ".attn", 8, nn::testing::rotation_form(8)),
            layer),
        feed_forward(parameters, nn::testing::gated_form(name + ".glu")),
        in(parameters, name + ".in"),
        out(parameters, name + ".out") {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const {
    const at::Tensor n = norm.forward(x, context);
    const at::Tensor inner = at::relu(in.forward(context.enter(n), context));
    return x + attention.forward(n, context) + feed_forward.forward(n, context) +
           context.leave(out.forward(inner * inner, context));
  }

  nn::Norm norm;
  nn::Attention attention;
  nn::FeedForward feed_forward;
  nn::Linear in, out;
};

struct WideModel {
  WideModel() {
    for (int64_t i = 0; i < kLayers; ++i) {
      blocks.emplace_back(parameters, "h." + std::to_string(i), i);
    }
    nn::RopeTables tables(twin::kSeq, at::kCPU);
    for (WideBlock& block : blocks) block.attention.prepare(tables);
  }
  tensor::ParameterSet parameters{{describe_wide()}};
  nn::Embedding embedding{parameters, "wte"};
  std::vector<WideBlock> blocks;
  nn::Norm norm{parameters, nn::testing::norm_form("ln_f")};
  nn::Linear head{parameters, "out_head"};
};

/// Makes the family of wide models. With `again` the blocks run again in the backward.
twin::Family make_wide(bool again) {
  const auto model = std::make_shared<WideModel>();
  model->parameters.check_taken();
  twin::Family family;
  family.owner = model;
  family.parameters = model->parameters.units().front().parameters;
  family.hidden = [m = model.get(), again](const nn::ForwardContext& context) {
    nn::Tensors x = {m->embedding.forward(context.batch.tokens, context)};
    for (const WideBlock& block : m->blocks) {
      const auto run = [&](const nn::Tensors& in) {
        return nn::Tensors{block.forward(in[0], context)};
      };
      x = again ? recompute(run, x) : run(x);
    }
    return nn::Tensors{m->norm.forward(x[0], context)};
  };
  family.loss = [m = model.get()](const nn::Tensors& hidden,
                                  const nn::ForwardContext& context) {
    return nn::loss_head(hidden[0], m->head.weight(), context);
  };
  return family;
}

twin::Model wide(bool again = false) {
  return {[again] { return make_wide(again); }};
}

TEST(TensorParallel, ADescriptionSufficesForAFamilyOfItsOwn) {
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

/// Gives the model an attention core that counts its calls and watches whether its
/// results stay in memory.
TEST(SelectiveRecompute, RunsAReplacedCoreOnceMoreAndKeepsNoResult) {
  const twin::Model model = wide();
  const twin::Result plain = run(model, Case{});
  for (const bool selective : {false, true}) {
    int calls = 0, alive_after_forward = 0;
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> results;
    Case c;
    c.selective = selective;
    c.attention = [&](const at::Tensor& q, const ops::KeptPositions& kept,
                      const ops::AttentionProblem& problem, bool fused) {
      if (++calls == kLayers + 1) {  // the backward has begun
        for (const auto& result : results) alive_after_forward += !result.expired();
      }
      const at::Tensor y = ops::attention(q, kept, problem, fused);
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
  // The collectives of tp run again in the backward, in one order on all ranks.
  Case c;
  c.tp = 3;
  c.sequence = true;
  const twin::Result plain = run(wide(), c);
  expect_same_bits(run(wide(/*again=*/true), c), plain, "recompute");
}

}  // namespace
}  // namespace longhaul::parallel
