// The tests compare attention that sees later keys, with dropout of probabilities and
// with capped scores, to the naive dense form in fp64 with the gradients of autograd.
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "longhaul/base/error.h"
#include "longhaul/ops/attention/attention.h"
#include "tests/support/dropout_by_element.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kLength = 300;
constexpr int64_t kHeads = 6;
constexpr int64_t kKeyHeads = 2;

struct MaskedProblem {
  at::Tensor q, k, v, dout;
  AttentionProblem mask;
};

struct MaskedResult {
  at::Tensor out, dq, dk, dv;
};

struct MaskCase {
  at::ScalarType type;
  bool fused;
  bool later;  ///< queries also see later keys
  double dropout;
  std::optional<double> scale;  ///< of the scores
  double cap = 0.0;             ///< of the scores
  int64_t dim = 64;
};

/// Sets documents of different lengths. The first sequence has four documents, one of a
/// single token. With `later` the second sequence has one document, padding, and a query
/// that sees no key.
void set_documents(AttentionProblem& mask, bool later) {
  at::Tensor start = at::zeros({kBatch, kLength}, at::kInt);
  at::Tensor end = at::full({kBatch, kLength}, kLength, at::kInt);
  const std::vector<int64_t> cuts{0, 41, 42, 190, kLength};
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    start[0].slice(0, cuts[i], cuts[i + 1]).fill_(cuts[i]);
    end[0].slice(0, cuts[i], cuts[i + 1]).fill_(cuts[i + 1]);
  }
  mask.document_start = start;
  if (!later) return;
  end[1].fill_(123);
  start[1][7].fill_(50);
  end[1][7].fill_(50);
  mask.document_end = end;
}

MaskedProblem masked_problem(const MaskCase& c) {
  at::manual_seed(5);
  const auto random = [&](int64_t heads) {
    return at::randn({kBatch, kLength, heads, c.dim}).to(c.type);
  };
  MaskedProblem p{
      random(kHeads), random(kKeyHeads), random(kKeyHeads), random(kHeads), {}};
  set_documents(p.mask, c.later);
  p.mask.dropout.probability = c.dropout;
  p.mask.dropout.key = 0x85a308d3243f6a88;
  p.mask.dropout.sequences = at::tensor({3L, (1L << 40) + 17}, at::kLong);
  p.mask.dropout.first_head = 12;
  p.mask.scale = c.scale;
  p.mask.score_cap = c.cap;
  return p;
}

at::Tensor hidden_keys(const AttentionProblem& mask) {
  const at::Tensor keys = at::arange(kLength).view({1, 1, 1, kLength});
  const auto of_queries = [](const at::Tensor& x) {
    return x.view({kBatch, 1, kLength, 1});
  };
  const at::Tensor early = keys < of_queries(mask.document_start);
  if (mask.document_end.defined()) return early | (keys >= of_queries(mask.document_end));
  return early | (keys > at::arange(kLength).view({1, 1, kLength, 1}));
}

/// Returns the attention by softmax, dropout and product, with all probabilities at once.
at::Tensor dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionProblem& mask) {
  const int64_t group = q.size(2) / k.size(2);
  const auto by_head = [](const at::Tensor& x) { return x.permute({0, 2, 1, 3}); };
  const at::Tensor keys = by_head(k).repeat_interleave(group, 1);
  const at::Tensor values = by_head(v).repeat_interleave(group, 1);
  const at::Tensor hidden = hidden_keys(mask);
  at::Tensor scores =
      at::matmul(by_head(q), keys.transpose(-1, -2)) * mask.scale_of<double>(q.size(3));
  if (mask.score_cap > 0.0) {
    scores = at::tanh(scores / mask.score_cap) * mask.score_cap;
  }
  at::Tensor p =
      at::softmax(scores.masked_fill(hidden, -1e30), -1).masked_fill(hidden, 0.0);
  if (mask.dropout.drops()) {
    p = p * expected_factors(mask.dropout, q.size(2), kLength, kLength);
  }
  return by_head(at::matmul(p, values));
}

template <typename Attention>
MaskedResult masked_run(const MaskedProblem& p, at::ScalarType type,
                        const Attention& attend) {
  const at::Tensor q = leaf(p.q.to(type)), k = leaf(p.k.to(type)), v = leaf(p.v.to(type));
  const at::Tensor out = attend(q, k, v);
  backward(out, p.dout.to(type));
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

MaskedResult dense(const MaskedProblem& p) {
  return masked_run(p, at::kDouble, [&](const auto& q, const auto& k, const auto& v) {
    return dense_attention(q, k, v, p.mask);
  });
}

MaskedResult of_operation(const MaskedProblem& p, bool fused) {
  return masked_run(p, p.q.scalar_type(),
                    [&](const auto& q, const auto& k, const auto& v) {
                      return attention(q, {k, v}, p.mask, fused);
                    });
}

void expect_same(const MaskedResult& got, const MaskedResult& want, double tolerance) {
  expect_close(got.out, want.out, tolerance, "out");
  expect_close(got.dq, want.dq, tolerance, "dq");
  expect_close(got.dk, want.dk, tolerance, "dk");
  expect_close(got.dv, want.dv, tolerance, "dv");
}

/// Attention in bf16 takes eight times as long as in fp32 on a CPU without products of
/// bf16. So `make test` tries it with the dropout of most models, and with dropout, scale
/// and cap at once. `make soak` tries the rest.
enum class Masks { Now, Soak };

class EveryMask : public ::testing::TestWithParam<Masks> {};

INSTANTIATE_TEST_SUITE_P(Now, EveryMask, ::testing::Values(Masks::Now));
INSTANTIATE_TEST_SUITE_P(DISABLED_Soak, EveryMask, ::testing::Values(Masks::Soak));

/// Calls body(case) for both dtypes, for the fused and the composite form, and with and
/// without causal attention. Each of these has several cases of dropout, scale and cap of
/// the scores.
template <typename Body>
void for_masks(Masks masks, const Body& body) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const bool fused : {false, true}) {
      for (const bool later : {false, true}) {
        struct Scores {
          double dropout;
          std::optional<double> scale;
          double cap;
        };
        for (const auto& [dropout, scale, cap] : {Scores{0.0, {}, 0.0},
                                                  {0.0, 0.31, 0.0},
                                                  {0.1, {}, 0.0},
                                                  {0.6, 0.015625, 0.0},
                                                  {0.1, 0.31, 1.5}}) {
          // No kernel caps scores, so both forms run the same operations, and one of them
          // is enough.
          if (cap > 0.0 && fused != later) continue;
          const bool soak =
              type == at::kBFloat16 && cap == 0.0 && (dropout != 0.1 || scale);
          if (soak != (masks == Masks::Soak)) continue;
          SCOPED_TRACE(fmt::format(
              "{}, {}, {}, dropout {}, scale {}, cap {}",
              type == at::kFloat ? "fp32" : "bf16", fused ? "fused" : "composite",
              later ? "later keys too" : "causal", dropout, scale.value_or(0.0), cap));
          body(MaskCase{type, fused, later, dropout, scale, cap});
        }
      }
    }
  }
}

TEST_P(EveryMask, EqualsTheDenseFormAndItsGradients) {
  // The fused and the composite form of a case have the same dense form.
  std::map<std::tuple<at::ScalarType, bool, double, double, double>, MaskedResult> made;
  for_masks(GetParam(), [&](MaskCase c) {
    c.dim = c.later == (c.dropout > 0.0) ? 64 : 24;
    const MaskedProblem p = masked_problem(c);
    auto& want = made[{c.type, c.later, c.dropout, c.scale.value_or(0.0), c.cap}];
    if (!want.out.defined()) want = dense(p);
    expect_same(of_operation(p, c.fused), want, 2 * tolerance_of(c.type));
  });
}

TEST(MaskedAttention, DropsProbabilitiesFromTheResultAndNotFromItsNorm) {
  // The naive result is far off without dropout, or with the dropout of another sequence.
  const MaskCase c{at::kFloat, true, true, 0.1, {}};
  MaskedProblem p = masked_problem(c);
  const at::Tensor got = of_operation(p, true).out;
  const auto error = [&] {
    const at::Tensor want = dense(p).out;
    return ((got - want).norm() / want.norm()).item<double>();
  };
  EXPECT_LT(error(), 1e-5);
  p.mask.dropout.first_head = 11;
  EXPECT_GT(error(), 0.1);
  p.mask.dropout.probability = 0.0;
  EXPECT_GT(error(), 0.1);
}

/// Returns the results of attention over two ranges of queries, each with its keys in
/// five parts, few of which begin at a multiple of four.
MaskedResult masked_parts(const MaskedProblem& p, bool fused) {
  const auto fp32 = [](const at::Tensor& x) {
    return at::zeros_like(x, x.options().dtype(at::kFloat));
  };
  MaskedResult r{fp32(p.q), fp32(p.q), fp32(p.k), fp32(p.v)};
  struct Run {
    int64_t begin, end;
    at::Tensor of(const at::Tensor& x) const { return x.slice(1, begin, end); }
    at::Tensor bound(const at::Tensor& x) const {
      return x.defined() ? of(x).contiguous() : x;
    }
  };
  for (const Run& queries : {Run{0, 131}, Run{131, kLength}}) {
    const auto part = [&](const Run& keys) {
      AttentionProblem mask = p.mask;
      mask.document_start = queries.bound(mask.document_start);
      mask.document_end = queries.bound(mask.document_end);
      return AttentionPart{queries.of(p.q),
                           {keys.of(p.k), keys.of(p.v)},
                           mask,
                           queries.begin,
                           keys.begin,
                           fused};
    };
    const std::vector<Run> runs{{65, 130}, {0, 65}, {130, 203}, {203, 206}, {206, 300}};
    at::Tensor out = queries.of(r.out);
    at::Tensor lse =
        at::full({kBatch, kHeads, queries.end - queries.begin}, -INFINITY, at::kFloat);
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

TEST_P(EveryMask, InPartsEqualsTheWhole) {
  for_masks(GetParam(), [](const MaskCase& c) {
    const MaskedProblem p = masked_problem(c);
    expect_same(masked_parts(p, c.fused), of_operation(p, c.fused),
                2 * tolerance_of(c.type));
  });
}

TEST_P(EveryMask, HasTheSameBitsWithHalfOfTheHeads) {
  for_masks(GetParam(), [](const MaskCase& c) {
    const MaskedProblem p = masked_problem(c);
    const MaskedResult all = of_operation(p, c.fused);
    for (const int64_t half : {0, 1}) {
      const auto part = [&](const at::Tensor& x) {
        return x.narrow(2, half * x.size(2) / 2, x.size(2) / 2).contiguous();
      };
      MaskedProblem own{part(p.q), part(p.k), part(p.v), part(p.dout), p.mask};
      own.mask.dropout.first_head += half * kHeads / 2;
      const MaskedResult r = of_operation(own, c.fused);
      EXPECT_TRUE(at::equal(r.out, part(all.out)));
      EXPECT_TRUE(at::equal(r.dq, part(all.dq)));
      EXPECT_TRUE(at::equal(r.dk, part(all.dk)));
      EXPECT_TRUE(at::equal(r.dv, part(all.dv)));
    }
  });
}

TEST_P(EveryMask, GivesZeroToAQueryThatSeesNoKeyAndToAKeyThatNoneSees) {
  for_masks(GetParam(), [](const MaskCase& c) {
    if (!c.later) return;
    const MaskedProblem p = masked_problem(c);
    const MaskedResult r = of_operation(p, c.fused);
    EXPECT_EQ(r.out[1][7].abs().max().item<float>(), 0.0F);
    EXPECT_EQ(r.dq[1][7].abs().max().item<float>(), 0.0F);
    EXPECT_EQ(r.dk[1].slice(0, 123).abs().max().item<float>(), 0.0F);
    EXPECT_EQ(r.dv[1].slice(0, 123).abs().max().item<float>(), 0.0F);
    EXPECT_GT(r.dv[1][122].abs().max().item<float>(), 0.0F);
    for (const at::Tensor& x : {r.out, r.dq, r.dk, r.dv}) {
      EXPECT_TRUE(at::isfinite(x).all().item<bool>());
    }
  });
}

TEST_P(EveryMask, HasTheSameBitsWithoutAScaleAndWithItsOwn) {
  for_masks(GetParam(), [](MaskCase c) {
    if (c.scale) return;
    MaskedProblem p = masked_problem(c);
    const MaskedResult absent = of_operation(p, c.fused);
    p.mask.scale = 0.125;  // 1 / sqrt(64)
    const MaskedResult given = of_operation(p, c.fused);
    EXPECT_TRUE(at::equal(absent.out, given.out));
    EXPECT_TRUE(at::equal(absent.dq, given.dq));
    EXPECT_TRUE(at::equal(absent.dk, given.dk));
    EXPECT_TRUE(at::equal(absent.dv, given.dv));
  });
}

TEST(MaskedAttention, WithCappedScoresIsFarFromThatWithoutACap) {
  MaskedProblem p = masked_problem({at::kFloat, true, true, 0.0, {}, 0.8});
  const at::Tensor capped = of_operation(p, true).out;
  p.mask.score_cap = 0.0;
  const at::Tensor plain = of_operation(p, true).out;
  EXPECT_GT(((capped - plain).norm() / plain.norm()).item<double>(), 0.05);
}

TEST(MaskedAttention, TakesValuesOfAnotherWidthThanKeys) {
  for (const bool fused : {false, true}) {
    MaskedProblem p = masked_problem({at::kFloat, fused, true, 0.1, {}});
    p.v = p.v.narrow(3, 0, 24).contiguous();
    p.dout = p.dout.narrow(3, 0, 24).contiguous();
    expect_same(of_operation(p, fused), dense(p), 2 * tolerance_of(at::kFloat));
  }
}

TEST(MaskedAttention, OfACpuIsOurOwnUnlessItsScoresAreCapped) {
  for (const double dropout : {0.0, 0.1}) {
    EXPECT_EQ(describe_attention({}, 64, dropout, at::kBFloat16, at::kCPU), "own");
  }
  EXPECT_EQ(describe_attention({.score_cap = 50.0}, 64, 0.0, at::kBFloat16, at::kCPU),
            "operations of LibTorch");
}

TEST(MaskedAttention, RefusesWhatContradictsItself) {
  const MaskCase c{at::kFloat, true, true, 0.1, {}};
  const auto refuses = [&](const auto& change) {
    MaskedProblem p = masked_problem(c);
    change(p.mask);
    EXPECT_THROW(attention(p.q, {p.k, p.v}, p.mask, true), Error);
  };
  refuses([](AttentionProblem& m) { m.window = 8; });
  refuses([](AttentionProblem& m) { m.document_end = m.document_end.slice(1, 1); });
  refuses([](AttentionProblem& m) { m.dropout.sequences.reset(); });
  refuses([](AttentionProblem& m) { m.dropout.probability = 1.0; });
  refuses([](AttentionProblem& m) { m.score_cap = -1.0; });
  refuses([](AttentionProblem& m) { m.score_cap = std::nan(""); });
  for (const double scale : {0.0, -0.125, 1e-60, 1e60, std::nan("")}) {
    SCOPED_TRACE(scale);
    refuses([&](AttentionProblem& m) { m.scale = scale; });
  }
}

}  // namespace
}  // namespace longhaul::ops
