// The tests compare attention whose keys come in parts to attention over all keys at
// once.
#include "longhaul/ops/attention/attention.h"

#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

struct Problem {
  at::Tensor q, k, v, dout, start;
  std::optional<int64_t> window = {};
};

/// Returns a random problem of two sequences of 300 positions; with `documents`, each has
/// four documents.
Problem random_problem(at::ScalarType type, bool documents) {
  at::manual_seed(5);
  const auto random = [&](int64_t heads) {
    return at::randn({2, 300, heads, 64}).to(type);
  };
  Problem p{random(6), random(2), random(2), random(6), {}};
  if (documents) {
    p.start = at::zeros({2, 300}, at::kInt);
    for (const int64_t cut : {41L, 42L, 190L}) {
      p.start.narrow(1, cut, 300 - cut).fill_(cut);
      p.start[1].narrow(0, cut + 7, 293 - cut).fill_(cut + 7);
    }
  }
  return p;
}

struct Result {
  at::Tensor out, dq, dk, dv;
};

Result whole(const Problem& p) {
  const at::Tensor q = leaf(p.q), k = leaf(p.k), v = leaf(p.v);
  const at::Tensor out = attention(q, {k, v}, {{{}, p.window}, p.start}, false);
  backward(out, p.dout);
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

/// Returns the results of attention over two ranges of queries, each with its keys in
/// four parts of different lengths. The parts are strided views.
Result in_parts(const Problem& p, bool fused) {
  const auto fp32 = [](const at::Tensor& x) {
    return at::zeros_like(x, x.options().dtype(at::kFloat));
  };
  Result r{fp32(p.q), fp32(p.q), fp32(p.k), fp32(p.v)};
  struct Run {
    int64_t begin, end;
    at::Tensor of(const at::Tensor& x) const { return x.narrow(1, begin, end - begin); }
  };
  for (const Run& queries : {Run{0, 130}, Run{130, 300}}) {
    const auto part = [&](const Run& keys) {
      return AttentionPart{
          queries.of(p.q),
          {keys.of(p.k), keys.of(p.v)},
          {{{}, p.window},
           p.start.defined() ? queries.of(p.start).contiguous() : p.start},
          queries.begin,
          keys.begin,
          fused};
    };
    const std::vector<Run> runs{{64, 130}, {0, 64}, {130, 257}, {257, 300}};
    at::Tensor out = queries.of(r.out);
    at::Tensor lse = at::full({2, 6, queries.end - queries.begin}, -INFINITY, at::kFloat);
    for (const Run& keys : runs) attention_part_forward(part(keys), out, lse);
    const at::Tensor rounded = out.to(p.q.scalar_type());
    at::Tensor dq = queries.of(r.dq);
    for (const Run& keys : runs) {
      attention_part_backward(part(keys), queries.of(p.dout), rounded, lse, dq,
                              {keys.of(r.dk), keys.of(r.dv)});
    }
  }
  return r;
}

class AttentionParts : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool>> {
};

INSTANTIATE_TEST_SUITE_P(
    All, AttentionParts,
    ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16), ::testing::Bool()),
    [](const auto& which) {
      return std::string(std::get<0>(which.param) == at::kFloat ? "Fp32" : "Bf16") +
             (std::get<1>(which.param) ? "Fused" : "Composite");
    });

TEST_P(AttentionParts, MakeTheAttentionOverAllKeys) {
  const auto [type, fused] = GetParam();
  for (const auto& [documents, window] : std::vector<std::pair<bool, int64_t>>{
           {false, 1000}, {true, 1000}, {false, 20}, {true, 100}, {false, 2}}) {
    SCOPED_TRACE(window);
    Problem p = random_problem(type, documents);
    p.window = window;
    const Result want = whole(p), got = in_parts(p, fused);
    const double tolerance = 2 * tolerance_of(type);
    expect_close(got.out, want.out, tolerance, "out");
    expect_close(got.dq, want.dq, tolerance, "dq");
    expect_close(got.dk, want.dk, tolerance, "dk");
    expect_close(got.dv, want.dv, tolerance, "dv");
  }
}

TEST_P(AttentionParts, LeaveQueriesWithoutKeysAtZero) {
  const auto [type, fused] = GetParam();
  const Problem p = random_problem(type, false);
  AttentionPart part{p.q, {p.k, p.v}, {}, 0, 290, fused};
  at::Tensor out = at::zeros({2, 300, 6, 64});
  at::Tensor lse = at::full({2, 6, 300}, -INFINITY, at::kFloat);
  attention_part_forward(part, out, lse);
  EXPECT_EQ(out.narrow(1, 0, 290).abs().max().item<float>(), 0.0F);
  EXPECT_TRUE(at::isneginf(lse.narrow(2, 0, 290)).all().item<bool>());
  EXPECT_TRUE(at::isfinite(lse.narrow(2, 290, 10)).all().item<bool>());
  at::Tensor dq = at::zeros_like(out), dk = at::zeros({2, 300, 2, 64}),
             dv = at::zeros_like(dk);
  attention_part_backward(part, p.dout, out.to(type), lse, dq, {dk, dv});
  EXPECT_EQ(dq.narrow(1, 0, 290).abs().max().item<float>(), 0.0F);
  EXPECT_EQ(dk.narrow(1, 10, 290).abs().max().item<float>(), 0.0F);
  EXPECT_GT(dv.narrow(1, 9, 1).abs().max().item<float>(), 0.0F);
  for (const at::Tensor& x : {out, dq, dk, dv}) {
    EXPECT_TRUE(at::isfinite(x).all().item<bool>());
  }
}

}  // namespace
}  // namespace longhaul::ops
