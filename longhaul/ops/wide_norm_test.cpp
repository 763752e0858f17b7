// The tests compare norms of queries and keys over all heads to plain autograd in fp64.
#include "longhaul/ops/wide_norm.h"

#include "longhaul/base/error.h"
#include "longhaul/ops/linear/side_by_side.h"
#include "longhaul/ops/rope.h"
#include "tests/support/parameters.h"
#include "tests/support/side_by_side.h"

namespace longhaul::ops {
namespace {

constexpr double kEps = 1e-3;

/// q, k and v by token, their gradients and the norms' weights.
struct WideProblem {
  WideProblem(int64_t tokens, int64_t query_heads, int64_t key_heads, int64_t dim,
              at::ScalarType type) {
    at::manual_seed(3);
    const int64_t heads = query_heads + 2 * key_heads;
    x = at::randn({tokens, heads, dim}).mul_(0.3).to(type);
    dy = at::randn({tokens, heads, dim}).to(type);
    w_q = (at::randn({query_heads * dim}) + 1.0).to(type);
    w_k = (at::randn({key_heads * dim}) + 1.0).to(type);
    for (const int64_t of : {query_heads, key_heads, key_heads}) {
      counts.push_back(of);
    }
  }
  /// Returns q, k and v of one matrix: views, or with `apart` copies in memories of their
  /// own.
  std::vector<at::Tensor> parts(const at::Tensor& of, bool apart = false) const {
    std::vector<at::Tensor> out = of.split_with_sizes(counts, 1);
    if (apart) {
      for (at::Tensor& part : out) part = part.clone(at::MemoryFormat::Contiguous);
    }
    return out;
  }
  std::vector<at::Tensor> leaves(bool apart) const {
    std::vector<at::Tensor> out;
    for (const at::Tensor& part : parts(x, apart)) {
      out.push_back(part.detach().set_requires_grad(true));
    }
    return out;
  }
  at::Tensor x, dy, w_q, w_k;
  std::vector<int64_t> counts;
};

/// Returns w x / sqrt(mean x^2 + eps) over all heads at once, in the dtype of x.
at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor rows = x.flatten(1);
  return (w * rows * at::rsqrt(rows.pow(2).mean({-1}, true) + kEps)).view(x.sizes());
}

struct PlainResult {
  at::Tensor q, k, dq, dk, dw_q, dw_k;
};

PlainResult plain(const WideProblem& p) {
  const auto part = p.parts(p.x), dy = p.parts(p.dy);
  const auto wide = [](const at::Tensor& t) { return leaf(t.to(at::kDouble)); };
  const at::Tensor q = wide(part[0]), k = wide(part[1]), w_q = wide(p.w_q),
                   w_k = wide(p.w_k);
  const at::Tensor y_q = plain_norm(q, w_q), y_k = plain_norm(k, w_k);
  backward(y_q, dy[0].to(at::kDouble));
  backward(y_k, dy[1].to(at::kDouble));
  return {y_q.detach(), y_k.detach(), q.grad(), k.grad(), w_q.grad(), w_k.grad()};
}

class WideNorm : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool>> {
 protected:
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  bool apart() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(
    All, WideNorm,
    ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16), ::testing::Bool()),
    [](const auto& which) {
      return std::string(std::get<0>(which.param) == at::kFloat ? "Fp32" : "Bf16") +
             (std::get<1>(which.param) ? "Apart" : "InOneMatrix");
    });

TEST_P(WideNorm, EqualsAutogradOverAllHeadsOfAToken) {
  for (const auto& [tokens, query_heads, key_heads, dim] :
       {std::tuple{2L, 1L, 1L, 8L}, {70L, 6L, 2L, 20L}, {33L, 4L, 4L, 64L}}) {
    SCOPED_TRACE(dim);
    const WideProblem p(tokens, query_heads, key_heads, dim, type());
    const WideNorms norms{bound(p.w_q), bound(p.w_k), kEps};
    const auto in = p.leaves(apart()), dy = p.parts(p.dy, apart());
    const Heads out = wide_norm_heads({in[0], in[1], in[2]}, norms);
    const auto dx = torch::autograd::grad({out.q, out.k, out.v}, in, dy);
    const PlainResult want = plain(p);
    const double tolerance = type() == at::kFloat ? 1e-6 : 4e-3;  // one rounding
    expect_close(out.q, want.q, tolerance, "q");
    expect_close(out.k, want.k, tolerance, "k");
    expect_close(dx[0], want.dq, tolerance, "dq");
    expect_close(dx[1], want.dk, tolerance, "dk");
    expect_close(norms.q->grad(), want.dw_q, 1e-6, "dw of q");
    expect_close(norms.k->grad(), want.dw_k, 1e-6, "dw of k");
    EXPECT_TRUE(at::equal(out.v, p.parts(p.x)[2]));
    EXPECT_TRUE(at::equal(dx[2], dy[2]));
    EXPECT_TRUE(out.q.is_contiguous() && out.k.is_contiguous());
    EXPECT_FALSE(out.q.is_view() || out.k.is_view());
    EXPECT_EQ(joined_columns(testing::as_rows(dx)).defined(), !apart());
    EXPECT_EQ(dx[2].is_alias_of(dy[2]), apart());
  }
}

TEST(WideNorms, MultipliesByTheWeightBeforeTheOnlyRounding) {
  const WideProblem p(64, 6, 2, 32, at::kBFloat16);
  const auto in = p.leaves(false);
  const WideNorms norms{bound(p.w_q), bound(p.w_k), kEps};
  const Heads out = wide_norm_heads({in[0], in[1], in[2]}, norms);
  const PlainResult want = plain(p);
  const auto equal = [](const at::Tensor& got, const at::Tensor& exact) {
    return got.eq(exact.to(at::kBFloat16)).to(at::kDouble).mean().item<double>();
  };
  // If values were rounded before and after the product, a fifth of them would differ.
  EXPECT_GT(equal(out.q, want.q), 0.999);
  EXPECT_GT(equal(out.k, want.k), 0.999);
}

TEST(WideNorms, GiveHeadsThatMayBeTurnedWhereTheyLie) {
  const WideProblem p(24, 4, 2, 16, at::kBFloat16);
  RopeConfig config;
  config.theta = 10000.0;
  const RopeTable table = make_rope_table(config, 16, 24, at::kCPU);
  const at::Tensor positions = at::arange(24, at::kInt);
  const auto dy = p.parts(p.dy);
  const auto run = [&](const auto& turn) {
    const auto in = p.leaves(false);
    const WideNorms norms{bound(p.w_q), bound(p.w_k), kEps};
    const Heads out = turn(wide_norm_heads({in[0], in[1], in[2]}, norms));
    auto results = torch::autograd::grad({out.q, out.k, out.v}, in, dy);
    for (const at::Tensor& x : {out.q, out.k, norms.q->grad(), norms.k->grad()}) {
      results.push_back(x.detach());
    }
    return results;
  };
  const auto turned =
      run([&](const Heads& h) { return rope_in_place(h, table, positions); });
  const auto copied = run([&](const Heads& h) {
    return Heads{rope(h.q, table, positions, true), rope(h.k, table, positions, true),
                 h.v};
  });
  for (size_t i = 0; i < copied.size(); ++i) {
    EXPECT_TRUE(at::equal(turned[i], copied[i])) << i;
  }
}

TEST(WideNorms, AddToGradientsAndLeaveFrozenWeightsAlone) {
  const WideProblem p(12, 4, 2, 16, at::kFloat);
  const WideNorms norms{bound(p.w_q), bound(p.w_k), kEps};
  norms.q->grad().fill_(7.0);
  norms.k->set_frozen(true);
  const auto in = p.leaves(true), dy = p.parts(p.dy);
  const Heads out = wide_norm_heads({in[0], in[1], in[2]}, norms);
  const auto dx = torch::autograd::grad({out.q, out.k, out.v}, in, dy);
  const PlainResult want = plain(p);
  expect_close(norms.q->grad() - 7.0, want.dw_q, 1e-5, "dw of q");
  expect_close(dx[1], want.dk, 1e-6, "dk");
}

TEST(WideNorms, RefusesAnotherWidthAndAPartThatNothingSums) {
  const at::Tensor x = at::ones({3, 2, 8});
  const auto refusal = [&](const WideNorms& norms) -> std::string {
    try {
      wide_norm_heads({x, x, x}, norms);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const tensor::ParameterPtr fits = bound(at::ones({16}), "q_norm.weight");
  EXPECT_NE(refusal({fits, bound(at::ones({8}), "k_norm.weight"), kEps})
                .find("k_norm.weight has 8 elements here, the input 2 heads of 8"),
            std::string::npos);
  const tensor::ParameterPtr half = tensor::make_parameter("q_norm.weight", {32}, {});
  format::TensorSlice slice = half->slice();
  slice.extent[0] = 16;
  half->set_slice(slice);
  half->bind(at::ones({16}), at::zeros({16}));
  EXPECT_NE(refusal({half, fits, kEps}).find("q_norm.weight is 16 of 32 elements"),
            std::string::npos);
}

}  // namespace
}  // namespace longhaul::ops
