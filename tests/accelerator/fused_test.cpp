#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "longhaul/device/device.h"
#include "longhaul/layout/context.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/experts/grouped_linear.h"
#include "longhaul/ops/experts/routed_rows.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/gelu.h"
#include "longhaul/ops/linear/weight_gradients.h"
#include "longhaul/parallel/context/local_attention.h"
#include "tests/accelerator/loaded.h"

// Operations that are one launch on the device: what they compute and what they move.

namespace longhaul::softdev_test {
namespace {

using ops::AttentionProblem, ops::AttentionPart;

/// Returns the launches and bytes of the operations of this name.
std::pair<int64_t, int64_t> tallied(const std::string& name) {
  const auto all = counters().at("operations");
  if (!all.contains(name)) return {0, 0};
  return {all[name][0].get<int64_t>(), all[name][1].get<int64_t>()};
}

/// Returns the launches and bytes that `call` adds to the operations of this name.
template <typename Call>
std::pair<int64_t, int64_t> added(const std::string& name, const Call& call) {
  const auto before = tallied(name);
  call();
  const auto after = tallied(name);
  return {after.first - before.first, after.second - before.second};
}

using Moved = std::pair<int64_t, int64_t>;

TEST(FusedForms, AreOneLaunchWithTheBytesOfTheirOperands) {
  const auto fp32 = at::TensorOptions(device());
  const at::Tensor x = at::ones({6, 8}, fp32), weight = at::ones({8}, fp32);
  at::Tensor y = at::empty_like(x), inverse = at::empty({6}, fp32);
  ASSERT_TRUE(ops::fused::supports(x, ops::fused::op<kernels::RmsNormForward>,
                                   ops::fused::op<kernels::RmsNormBackward>));
  at::Tensor sum;
  const auto norm = [&](const at::Tensor& of, const at::Tensor& delta) {
    return added("longhaul::rms_norm_forward", [&] {
      ops::fused::op<kernels::RmsNormForward>(of, delta, weight, 0.0,
                                              RmsForm::WeightAfterCast, sum, y, inverse);
    });
  };
  EXPECT_EQ(norm(x, {}), Moved(1, 4 * (48 + 8 + 48 + 6)));
  EXPECT_TRUE(at::equal(y.cpu(), at::ones({6, 8})));
  // A residual sum is read and written by the same launch.
  sum = at::zeros_like(x);
  EXPECT_EQ(norm(x, x), Moved(1, 4 * (4 * 48 + 8 + 6)));
  EXPECT_TRUE(at::equal(sum.cpu(), at::full({6, 8}, 2.0)));
  EXPECT_TRUE(at::equal(y.cpu(), at::ones({6, 8})));
  sum.reset();
  // Heads that are columns of a wider matrix move no more bytes than a matrix of their
  // own.
  const at::Tensor heads = at::ones({3, 30}, fp32).narrow(1, 5, 16).view({3, 2, 8});
  y = at::zeros({3, 2, 8}, fp32), inverse = at::empty({3, 2}, fp32);
  EXPECT_EQ(norm(heads, {}), Moved(1, 4 * (48 + 8 + 48 + 6)));
  EXPECT_TRUE(at::equal(y.cpu(), at::ones({3, 2, 8})));
  // The logits are read, and their gradient is written in their place.
  at::Tensor logits = at::zeros({6, 8}, fp32), loss = at::empty({6}, fp32),
             squared = at::empty({6}, fp32);
  const at::Tensor targets = at::zeros({6}, fp32.dtype(at::kLong));
  EXPECT_EQ(added("longhaul::cross_entropy",
                  [&] {
                    ops::fused::op<kernels::CrossEntropy>(logits, targets, 1.0, 0.0, true,
                                                          loss, squared);
                  }),
            Moved(1, 4 * (2 * 48 + 6 + 6) + 8 * 6));
}

TEST(FusedForms, AddAnEmbeddingsGradientTokenByTokenInOneLaunch) {
  at::manual_seed(4);
  const at::Tensor dy = at::randn({6, 8}), table = at::randn({5, 8});
  // The rows -1 and 5 belong to other parts of the table. Row 2 has three tokens.
  const at::Tensor rows = at::tensor({-1, 0, 2, 2, 2, 5}, at::kLong),
                   order = at::tensor({4, 5, 3, 0, 2, 1}, at::kLong);
  at::Tensor expected = table.clone();
  expected[0] += dy[5];
  for (const int64_t token : {3, 0, 2}) expected[2] += dy[token];
  const at::Tensor there = dy.to(device()), grad = table.to(device());
  ASSERT_TRUE(ops::fused::supports(there, ops::fused::op<kernels::EmbeddingGradient>));
  EXPECT_FALSE(ops::fused::supports(dy, ops::fused::op<kernels::EmbeddingGradient>));
  EXPECT_EQ(added("longhaul::embedding_gradient",
                  [&] {
                    ops::fused::op<kernels::EmbeddingGradient>(there, rows.to(device()),
                                                               order.to(device()), grad);
                  }),
            Moved(1, 4 * (48 + 2 * 48) + 2 * 8 * 6));
  EXPECT_TRUE(at::equal(grad.cpu(), expected));
}

TEST(FusedForms, HaveGeluAndItsGradientInOneLaunchEach) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({5, 7}), dy = at::randn({5, 7});
  for (const Activation form : {Activation::GeluExact, Activation::GeluTanh}) {
    const auto run = [&](at::Device on, bool fused) {
      const device::BackwardHere here;
      const at::Tensor in = x.clone().to(on).set_requires_grad(true);
      const at::Tensor y = ops::gelu(in, form, fused);
      torch::autograd::backward({y}, {dy.to(on)});
      return std::pair(y.detach().cpu(), in.grad().cpu());
    };
    std::pair<at::Tensor, at::Tensor> found;
    EXPECT_EQ(added("longhaul::gelu_forward",
                    [&] {
                      EXPECT_EQ(added("longhaul::gelu_backward",
                                      [&] { found = run(device(), true); }),
                                Moved(1, 4 * 3 * 35));
                    }),
              Moved(1, 4 * 2 * 35));
    const auto expected = run(at::kCPU, true);
    EXPECT_TRUE(at::equal(found.first, expected.first));
    EXPECT_TRUE(at::equal(found.second, expected.second));
    EXPECT_EQ(added("longhaul::gelu_forward", [&] { run(device(), false); }).first, 0);
  }
}

TEST(Bytes, AreThoseOfTheElements) {
  const at::Tensor x = at::ones({6, 8}, device()), y = at::ones({6, 2}, device());
  EXPECT_EQ(added("aten::add", [&] { x.narrow(1, 3, 2) + y; }), Moved(1, 3 * 48));
  EXPECT_EQ(added("aten::mul", [&] { x.mul_(x); }), Moved(1, 3 * 192));
  EXPECT_EQ(added("aten::fill_", [&] { x.fill_(2); }), Moved(1, 192));
  EXPECT_EQ(added("aten::add", [&] { x + y.narrow(1, 0, 1).expand({6, 8}); }),
            Moved(1, 192 + 24 + 192));
  const at::Tensor rows = at::zeros({3}, x.options().dtype(at::kLong));
  EXPECT_EQ(added("aten::index_select", [&] { at::index_select(x, 0, rows); }),
            Moved(1, 24 + 2 * 96));
  EXPECT_EQ(added("aten::index_add",
                  [&] { x.index_add_(0, rows, at::ones({3, 8}, device())); }),
            Moved(1, 24 + 3 * 96));
}

TEST(Products, OfBf16AreAddedInFp32ByOneLaunch) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({40, 8}).to(at::kBFloat16),
                   dy = at::randn({40, 6}).to(at::kBFloat16);
  const at::Tensor grad = at::ones({6, 8}, device());
  ops::accumulate_weight_gradient(grad, x.to(device()), dy.to(device()));  // asks once
  grad.fill_(1);
  EXPECT_EQ(added("aten::addmm",
                  [&] {
                    ops::accumulate_weight_gradient(grad, x.to(device()),
                                                    dy.to(device()));
                  }),
            Moved(1, 2 * 40 * (8 + 6) + 2 * 4 * 48));
  const at::Tensor exact = 1 + dy.to(at::kDouble).t().mm(x.to(at::kDouble));
  EXPECT_LT((grad.cpu() - exact).norm().item<double>(),
            1e-6 * exact.norm().item<double>());
}

/// Sends 40 tokens to two of five experts each, on a device. The experts have `inner`
/// features, and their weights lie side by side as in a bucket. Returns the result and
/// gradients, and adds the waits of the host to `waits`.
std::vector<at::Tensor> through_experts(at::Device on, at::ScalarType type, int64_t inner,
                                        int64_t& waits) {
  constexpr int64_t kExperts = 5, kWidth = 64;
  at::manual_seed(12);
  const device::BackwardHere here;
  const auto random = [&](at::IntArrayRef sizes) {
    return at::randn(sizes).to(type).to(on);
  };
  const at::Tensor memory = random({kExperts * 2 * inner, kWidth});
  const at::Tensor grads = at::zeros(memory.sizes(), at::TensorOptions(on));
  ops::ExpertWeights weights(kExperts);
  for (int64_t i = 0; i < 2 * kExperts; ++i) {
    auto w = tensor::make_parameter(std::to_string(i), {inner, kWidth}, {});
    w->set_frozen(false);
    w->bind(memory.narrow(0, i * inner, inner), grads.narrow(0, i * inner, inner));
    weights[static_cast<size_t>(i / 2)].push_back(std::move(w));
  }
  const at::Tensor x = random({40, kWidth}).set_requires_grad(true);
  const at::Tensor dy = random({40, inner});
  const at::Tensor weigh = at::rand({80}).to(on).set_requires_grad(true);
  // Only four experts can be chosen, so that the last one gets no tokens.
  const at::Tensor chosen =
      std::get<0>(at::sort(std::get<1>(at::topk(at::rand({40, 4}), 2, -1)), -1)).to(on);
  const int64_t before = counted("synchronizations");
  const ops::RoutedRows rows = ops::route(chosen, kExperts);
  const auto gated =
      ops::grouped_linear(ops::gather_rows(x, rows, true), rows.offsets, weights,
                          std::make_shared<ops::WeightGradients>(), true);
  const at::Tensor y = ops::sum_rows(
      ops::gated_product(gated[0], gated[1], Activation::Silu, true, weigh), rows, true);
  torch::autograd::backward({y}, {dy});
  waits += counted("synchronizations") - before;
  return {y.detach().cpu(), x.grad().cpu(), weigh.grad().cpu(), grads.cpu()};
}

TEST(Experts, AreComputedWithoutAWaitOfTheHost) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    // Rows of 37 elements begin at no multiple of 16 bytes.
    for (const int64_t inner : {32, 37}) {
      int64_t waits = 0;
      const auto found = through_experts(device(), type, inner, waits);
      EXPECT_EQ(waits, 0);
      const auto expected = through_experts(at::kCPU, type, inner, waits);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], expected[i])) << inner << ", result " << i;
      }
    }
  }
}

struct AttentionCase {
  std::string name;
  int64_t heads = 8, key_heads = 2, queries = 20, keys = 20;
  AttentionProblem mask = {};
};

/// Returns result and gradients on the host in fp32.
std::vector<at::Tensor> attended(const AttentionCase& c, at::Device on, bool fused) {
  at::manual_seed(11);
  const auto random = [&](int64_t length, int64_t heads) {
    return at::randn({2, length, heads, 16}).to(at::kBFloat16);
  };
  std::vector<at::Tensor> in = {random(c.queries, c.heads), random(c.keys, c.key_heads),
                                random(c.keys, c.key_heads)};
  const at::Tensor dy = random(c.queries, c.heads).to(on);
  for (at::Tensor& x : in) x = x.to(on).set_requires_grad(true);
  AttentionProblem mask = c.mask;
  for (at::Tensor* t :
       {&mask.document_start, &mask.document_end, &mask.documents.bounds}) {
    if (t->defined()) *t = t->to(on);
  }
  const device::BackwardHere here;
  const at::Tensor y = ops::attention(in[0], {in[1], in[2]}, mask, fused);
  torch::autograd::backward({y}, {dy});
  std::vector<at::Tensor> results = {y.detach().cpu().to(at::kFloat)};
  for (const at::Tensor& x : in) results.push_back(x.grad().cpu().to(at::kFloat));
  return results;
}

AttentionProblem window_of(std::optional<int64_t> size) {
  AttentionProblem mask;
  mask.window = size;
  return mask;
}

AttentionProblem scale_of_scores(double scale) {
  AttentionProblem mask;
  mask.scale = scale;
  return mask;
}

AttentionProblem documents(bool both_sides, std::optional<int64_t> window = {}) {
  AttentionProblem mask = window_of(window);
  const std::vector<int32_t> bounds = {0, 7, 20, 24, 40};
  mask.document_start = at::zeros({2, 20}, at::kInt);
  at::Tensor end = at::zeros({2, 20}, at::kInt);
  for (size_t i = 0; i < 4; ++i) {
    const int64_t row = bounds[i] / 20, first = bounds[i] % 20,
                  n = bounds[i + 1] - bounds[i];
    mask.document_start[row].narrow(0, first, n).fill_(first);
    end[row].narrow(0, first, n).fill_(first + n);
  }
  if (both_sides) mask.document_end = end;
  mask.documents = {at::tensor(bounds, at::kInt), 16};
  return mask;
}

void expect_near(const at::Tensor& found, const at::Tensor& expected,
                 const std::string& what) {
  EXPECT_LE((found - expected).norm().item<double>(),
            1e-2 * expected.norm().item<double>())
      << what;
}

TEST(FlashAttention, IsTheCompositeOneOfTheCpuInEveryForm) {
  const std::vector<AttentionCase> cases = {
      {"causal", 4, 4},
      {"groups of heads"},
      {"cached keys", 8, 2, 5, 33},
      {"one query", 8, 2, 1, 12},
      {"window", 8, 2, 20, 20, window_of(6)},
      {"window of cached keys", 4, 4, 5, 33, window_of(6)},
      {"documents", 8, 2, 20, 20, documents(false)},
      {"documents and a window", 4, 2, 20, 20, documents(false, 4)},
      {"documents on both sides", 8, 2, 20, 20, documents(true)},
      {"a scale of the scores", 8, 2, 20, 20, scale_of_scores(0.6)},
  };
  for (const AttentionCase& c : cases) {
    std::vector<at::Tensor> found;
    const auto forward = added("aten::_flash_attention_forward", [&] {
      const auto backward = added("aten::_flash_attention_backward",
                                  [&] { found = attended(c, device(), true); });
      EXPECT_EQ(backward.first, 1) << c.name;
    });
    EXPECT_EQ(forward.first, 1) << c.name;
    const auto expected = attended(c, at::kCPU, false);
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_near(found[i], expected[i], c.name + " " + std::to_string(i));
    }
  }
}

TEST(FlashAttention, MovesItsInputsAndResultsOnce) {
  const int64_t q = 2 * 20 * 8 * 16, kv = 2 * 20 * 2 * 16, lse = 2 * 8 * 20;
  const int64_t rng = 2 * 8;
  EXPECT_EQ(added("aten::_flash_attention_forward",
                  [] { attended({"causal"}, device(), true); }),
            Moved(1, 2 * (2 * q + 2 * kv) + 4 * lse + rng));
  EXPECT_EQ(added("aten::_flash_attention_backward",
                  [] { attended({"causal"}, device(), true); }),
            Moved(1, 2 * (4 * q + 4 * kv) + 4 * lse + rng));
}

/// Computes attention of the queries [9, 24) of a sequence to all keys, with one part of
/// the keys after the other.
std::vector<at::Tensor> of_parts(std::optional<int64_t> window, at::Device on,
                                 bool fused) {
  at::manual_seed(5);
  const int64_t first = 9, n = 15;
  const auto random = [&](int64_t rows, int64_t heads) {
    return at::randn({2, rows, heads, 16}).to(at::kBFloat16).to(on);
  };
  const at::Tensor q = random(n, 8), k = random(24, 2), v = random(24, 2),
                   dout = random(n, 8);
  const auto fp32 = q.options().dtype(at::kFloat);
  at::Tensor out = at::zeros(q.sizes(), fp32), dq = at::zeros_like(out),
             dk = at::zeros(k.sizes(), fp32), dv = at::zeros_like(dk);
  at::Tensor lse = at::full({2, 8, n}, -std::numeric_limits<float>::infinity(), fp32);
  const std::vector<int64_t> ends = {0, 5, 9, 16, 23, 24};
  const auto each = [&](const auto& call) {
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      const int64_t from = ends[i], rows = ends[i + 1] - from;
      call(AttentionPart{q,
                         {k.narrow(1, from, rows), v.narrow(1, from, rows)},
                         window_of(window),
                         first,
                         from,
                         fused},
           from, rows);
    }
  };
  each([&](const AttentionPart& part, int64_t, int64_t) {
    ops::attention_part_forward(part, out, lse);
  });
  const at::Tensor rounded = out.to(at::kBFloat16);
  each([&](const AttentionPart& part, int64_t from, int64_t rows) {
    ops::attention_part_backward(part, dout, rounded, lse, dq,
                                 {dk.narrow(1, from, rows), dv.narrow(1, from, rows)});
  });
  return {out.cpu(), lse.cpu(), dq.cpu(), dk.cpu(), dv.cpu()};
}

TEST(FlashAttention, OfPartsOfTheKeysMerges) {
  for (const std::optional<int64_t> window : {std::optional<int64_t>(), {3}, {8}}) {
    std::vector<at::Tensor> found;
    const int64_t merges = tallied("longhaul::merge_attention").first;
    const int64_t parts = added("aten::_flash_attention_backward", [&] {
                            found = of_parts(window, device(), true);
                          }).first;
    EXPECT_GE(parts, 2);
    EXPECT_EQ(tallied("longhaul::merge_attention").first - merges, parts);
    const auto expected = of_parts(window, at::kCPU, false);
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_near(found[i], expected[i],
                  std::to_string(window.value_or(0)) + " " + std::to_string(i));
    }
  }
}

TEST(FlashAttention, TakesAPartInByOneLaunch) {
  at::manual_seed(7);
  const auto fp32 = at::TensorOptions(device());
  const at::Tensor q = at::randn({2, 3, 4, 16}).to(at::kBFloat16).to(device());
  at::Tensor out = at::zeros({2, 3, 4, 16}, fp32);
  at::Tensor lse = at::full({2, 4, 3}, -std::numeric_limits<float>::infinity(), fp32);
  EXPECT_EQ(added("longhaul::merge_attention",
                  [&] { ops::attention_part_forward({q, {q, q}, {}, 0, 0}, out, lse); }),
            // For each element the part is read in bf16, and the result is read and
            // written. For each of the 24 rows three fp32 values are moved.
            Moved(1, 384 * (2 + 4 + 4) + 24 * (4 + 4 + 4)));
}

/// Computes attention over whole sequences by ranks that hold parts of them. Returns out,
/// dq, dk and dv.
std::vector<at::Tensor> by_ranks(int ranks, const std::vector<at::Tensor>& whole) {
  const layout::ContextLayout layout(whole[0].size(1), ranks);
  const auto of_rank = [&](const at::Tensor& x, int rank) {
    std::vector<at::Tensor> chunks;
    for (const layout::ContextChunk& chunk : layout.chunks(rank)) {
      chunks.push_back(x.narrow(1, chunk.begin, chunk.length));
    }
    return at::cat(chunks, 1).to(device());
  };
  std::vector<ops::KeptPositions> keys, gradients;
  for (int r = 0; r < ranks; ++r) {
    keys.push_back({of_rank(whole[1], r), of_rank(whole[2], r)});
    gradients.push_back(parallel::zero_gradients(keys.back()));
  }
  std::vector<at::Tensor> results;
  for (const at::Tensor& x : {whole[0], whole[0], whole[1], whole[2]}) {
    results.push_back(at::zeros(x.sizes(), at::kFloat));
  }
  const auto put = [&](at::Tensor& into, const at::Tensor& part, int rank) {
    const at::Tensor here = part.cpu();
    for (const layout::ContextChunk& chunk : layout.chunks(rank)) {
      into.narrow(1, chunk.begin, chunk.length)
          .copy_(here.narrow(1, chunk.local, chunk.length));
    }
  };
  for (int r = 0; r < ranks; ++r) {
    const at::Tensor q = of_rank(whole[0], r), dout = of_rank(whole[3], r);
    const parallel::LocalAttention local(layout, r, q, {}, /*fused=*/true);
    parallel::AttentionSums sums = local.begin();
    at::Tensor dq = local.begin_gradient();
    const auto source = [&](int i) { return (r + i) % ranks; };
    const auto key = [&](int i) { return static_cast<size_t>(source(i)); };
    for (int i = 0; i < ranks; ++i) {
      local.forward(source(i), keys[key(i)], sums, [] {});
    }
    const at::Tensor out = sums.out.to(q.scalar_type());
    for (int i = 0; i < ranks; ++i) {
      local.backward(source(i), keys[key(i)], dout, out, sums.lse, dq, gradients[key(i)],
                     [] {});
    }
    put(results[0], out, r);
    put(results[1], dq, r);
  }
  for (int r = 0; r < ranks; ++r) {
    put(results[2], gradients[static_cast<size_t>(r)][0], r);
    put(results[3], gradients[static_cast<size_t>(r)][1], r);
  }
  return results;
}

TEST(FlashAttention, OfARankIsOneCallForEachRanksKeys) {
  at::manual_seed(8);
  const auto random = [](int64_t heads) {
    return at::randn({2, 48, heads, 16}).to(at::kBFloat16);
  };
  const std::vector<at::Tensor> whole = {random(8), random(2), random(2), random(8)};
  std::vector<at::Tensor> leaves;
  for (size_t i = 0; i < 3; ++i) {
    leaves.push_back(whole[i].clone().set_requires_grad(true));
  }
  const at::Tensor out = ops::attention(leaves[0], {leaves[1], leaves[2]}, {}, false);
  torch::autograd::backward({out}, {whole[3]});
  const std::vector<at::Tensor> expected = {out.detach(), leaves[0].grad(),
                                            leaves[1].grad(), leaves[2].grad()};
  for (const int ranks : {2, 3, 4}) {
    std::vector<at::Tensor> found;
    const int64_t merges = tallied("longhaul::merge_attention").first;
    EXPECT_EQ(
        added("aten::_flash_attention_forward", [&] { found = by_ranks(ranks, whole); })
            .first,
        ranks * ranks);
    // The first part makes the result into which the others are merged.
    EXPECT_EQ(tallied("longhaul::merge_attention").first - merges, ranks * (ranks - 1));
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_near(found[i], expected[i].to(at::kFloat),
                  std::to_string(ranks) + " " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace longhaul::softdev_test
