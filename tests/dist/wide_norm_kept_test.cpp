// Tests that a norm over all heads keeps what its description says, to the byte, on every
// rank.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "longhaul/families/layers/unit_maker.h"
#include "longhaul/layout/shard_plan.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/wide_norm.h"
#include "longhaul/parallel/tensor/region.h"
#include "tests/dist/counted_memory.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/side_by_side.h"

namespace longhaul {
namespace {

constexpr int64_t kNormTokens = 40, kNormHidden = 24, kNormDim = 8;
constexpr int64_t kNormQueryHeads = 8, kNormKeyHeads = 2;

/// Returns a unit of attention with norms of queries and keys over all heads.
UnitDescription normed_attention() {
  constexpr format::Heads kHeads = {kNormQueryHeads, kNormKeyHeads};
  const format::ShardSplit query{format::ShardUnit::QueryHeads, 0, kHeads},
      key{format::ShardUnit::KeyHeads, 0, kHeads};
  const int64_t q_width = kNormQueryHeads * kNormDim, k_width = kNormKeyHeads * kNormDim;
  families::UnitMaker unit(UnitKind::Block, 0, 0.02);
  const families::Feature x = unit.input(kNormHidden);
  unit.enter();
  const auto q = unit.matrix("q", q_width, x, query);
  const auto k = unit.matrix("k", k_width, x, key);
  const auto v = unit.matrix("v", k_width, x, key);
  const auto normed_q = unit.wide_norm("q_norm", q, query);
  const auto normed_k = unit.wide_norm("k_norm", k, key);
  const auto y = unit.attention(normed_q, normed_k, v, kNormDim);
  unit.matrix("o", kNormHidden, y, {format::ShardUnit::QueryHeads, 1, kHeads});
  unit.leave();
  return unit.take();
}

struct NormKeptCase {
  ForwardForm form;
  int tp = 1;
  bool sequence = false;
  bool flat = false;  ///< weights lie side by side
};

/// Returns the bytes that live after the forward, and after the backward with deferred
/// weight gradients.
std::pair<int64_t, int64_t> held_by(const NormKeptCase& c, const layout::ShardPlan& plan,
                                    comm::Communicator& tp) {
  const auto type = c.form.compute_bytes == 4 ? at::kFloat : at::kBFloat16;
  std::vector<tensor::ParameterPtr> p;  // q, k, v, q_norm, k_norm, o
  for (const ParameterDescription& described : normed_attention().parameters) {
    p.push_back(std::make_shared<tensor::Parameter>(described));
    const tensor::ParameterPtr& own = p.back();
    own->set_slice(
        layout::plan_parameter(plan, {own->slice(), own->split()}, tp.rank()).slice);
    own->set_frozen(false);
    own->bind(at::zeros(own->slice().extent, type), at::zeros(own->slice().extent));
  }
  if (c.flat) testing::lay_side_by_side(p);
  const parallel::TensorRegion region(tp, c.sequence);
  const auto gradients = std::make_shared<ops::WeightGradients>();
  gradients->set_immediate(false);
  const int64_t rows = c.sequence ? kNormTokens / tp.size() : kNormTokens;
  const int64_t before = testing::CountedMemory::live();
  torch::autograd::Edge root;
  {
    const at::Tensor x = at::zeros({rows, kNormHidden}, type).set_requires_grad(true);
    const auto y = ops::joint_linear(region.enter(x),
                                     {{p[0], {}}, {p[1], {}}, {p[2], {}}}, gradients);
    const auto heads = [](const at::Tensor& t) {
      return t.view({kNormTokens, -1, kNormDim});
    };
    const ops::WideNorms norms{p[3], p[4], 1e-5,
                               [&](at::Tensor& sums) { region.sum_features(sums); }};
    const ops::Heads h =
        ops::wide_norm_heads({heads(y[0]), heads(y[1]), heads(y[2])}, norms);
    const at::Tensor attended = ops::attention(
        h.q.unsqueeze(0), {h.k.unsqueeze(0), h.v.unsqueeze(0)}, {}, c.form.fused);
    root = torch::autograd::impl::gradient_edge(
        region.leave(ops::linear(attended.view({kNormTokens, -1}), p[5], gradients)));
  }
  const int64_t forward = testing::CountedMemory::live() - before;
  torch::autograd::Engine::get_default_engine().execute(
      {std::exchange(root, {})}, {at::ones({rows, kNormHidden}, type)}, false, false,
      true, {});
  const int64_t put_off = testing::CountedMemory::live() - before;
  gradients->drain();
  EXPECT_EQ(testing::CountedMemory::live(), before);
  return {forward, put_off};
}

void expect_kept(const NormKeptCase& c) {
  SCOPED_TRACE(fmt::format("{} {} bytes, tp {}{}{}", c.form.fused ? "fused" : "composite",
                           c.form.compute_bytes, c.tp, c.sequence ? " sequence" : "",
                           c.flat ? ", flat" : ""));
  const layout::ShardPlan plan = {c.tp, c.sequence};
  const UnitForward described = normed_attention().forward;
  const TokenCounts tokens{kNormTokens, c.sequence ? kNormTokens / c.tp : kNormTokens, 1};
  comm::run_fake_ranks(c.tp, [&](const std::shared_ptr<comm::Communicator>& world) {
    const auto [forward, put_off] = held_by(c, plan, *world);
    EXPECT_EQ(forward,
              described.kept(c.form, tokens, plan.rank(world->rank()), true).total());
    EXPECT_EQ(put_off,
              described.kept_put_off(c.form, tokens, plan.rank(world->rank())).total());
  });
}

TEST(WideNormKept, IsWhatItsDescriptionSaysOnEveryRank) {
  testing::CountedMemory::install();
  for (const int64_t bytes : {2, 4}) {
    for (const bool fused : {false, true}) {
      const ForwardForm form{fused, bytes};
      for (const bool flat : {false, true}) {
        expect_kept({form, 1, false, flat});
        for (const int tp : {2, 4}) {  // with 4 ranks two ranks hold each key head
          for (const bool sequence : {false, true}) {
            expect_kept({form, tp, sequence, flat});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
