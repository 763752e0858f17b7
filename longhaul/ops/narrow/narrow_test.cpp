// The tests compare the forms for devices without 64-bit numbers, on the CPU, with the
// other forms.
#include "longhaul/ops/narrow/narrow.h"

#include <cmath>
#include <limits>

#include "longhaul/ops/attention/backend.h"
#include "longhaul/ops/dropout.h"
#include "longhaul/ops/narrow/loss.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

constexpr double kTwin = 1e-6;

/// Returns the two words of each number, the lower one first.
at::Tensor in_words_of_32_bits(const at::Tensor& numbers) {
  return at::stack({numbers.bitwise_and(0xFFFFFFFF), numbers.bitwise_right_shift(32)}, -1)
      .to(at::kInt);
}

Dropout narrow_draws(int64_t rows) {
  Dropout draws;
  draws.probability = 0.3;
  draws.key = 0xA99f31d0F4093822;
  draws.sequences = at::arange(rows, at::kLong).mul_(0x1234567891).remainder_(1L << 47);
  draws.index = at::arange(rows, at::kInt).mul_(7).remainder_(8192);
  return draws;
}

TEST(NarrowDropout, DropsTheSameElementsByWordsOf32Bits) {
  Dropout draws = narrow_draws(37);
  const at::Tensor x = at::randn({37, 50});
  for (const int64_t first : {0, 4, 6}) {
    draws.first_column = first;
    Dropout in_words = draws;
    in_words.sequences = in_words_of_32_bits(draws.sequences);
    const at::Tensor want = dropout(x, draws, /*fused=*/false);
    EXPECT_TRUE(at::equal(dropout(x, in_words, /*fused=*/false), want));
    EXPECT_TRUE(at::equal(dropout(x, in_words, /*fused=*/true), want));
    const double dropped = (want == 0.0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(dropped, 0.3, 0.05);
  }
}

struct NarrowCase {
  const char* name;
  int64_t queries = 300, keys = 300;
  std::optional<int64_t> window = {};
  double cap = 0.0;
  bool documents = false, later = false, drops = false;
  std::optional<int64_t> query_begin = {};
  int64_t key_heads = 2;
};

AttentionPart part_of_case(const NarrowCase& c) {
  at::manual_seed(3);
  const auto random = [](int64_t length, int64_t heads) {
    return at::randn({2, length, heads, 16});
  };
  AttentionProblem problem;
  problem.window = c.window;
  problem.score_cap = c.cap;
  if (c.documents) {
    problem.document_start = at::zeros({2, c.queries}, at::kInt);
    problem.document_start[0].slice(0, 41).fill_(41);
    problem.document_start[1].slice(0, 200).fill_(200);
  }
  if (c.later) {
    problem.document_end = at::full({2, c.queries}, c.keys, at::kInt);
    problem.document_end[0].slice(0, 0, 41).fill_(41);
    problem.document_end[1][7].fill_(0);  // a query without keys
  }
  if (c.drops) {
    problem.dropout = narrow_draws(2);
    problem.dropout.first_head = 12;
  }
  return {random(c.queries, 6),
          {random(c.keys, c.key_heads), random(c.keys, c.key_heads)},
          problem,
          c.query_begin.value_or(c.keys - c.queries),
          0,
          false,
          true};
}

TEST(NarrowAttention, HasTheResultsAndGradientsOfTheCompositeForm) {
  for (const NarrowCase& c : std::vector<NarrowCase>{
           {.name = "causal"},
           {.name = "one key head", .key_heads = 1},
           {.name = "as many key heads", .key_heads = 6},
           {.name = "window", .window = 20},
           {.name = "window beyond the keys", .window = 4000},
           {.name = "cap", .cap = 1.5},
           {.name = "documents", .documents = true},
           {.name = "both sides", .documents = true, .later = true},
           {.name = "dropout", .drops = true},
           {.name = "cached keys", .queries = 5, .keys = 130},
           {.name = "keys behind", .queries = 130, .keys = 512, .query_begin = 100},
           {.name = "window and keys behind",
            .queries = 300,
            .keys = 700,
            .window = 30,
            .documents = false,
            .query_begin = 250}}) {
    SCOPED_TRACE(c.name);
    const AttentionPart part = part_of_case(c);
    AttentionPart narrow_part = part;
    if (c.drops) {
      narrow_part.problem.dropout.sequences =
          in_words_of_32_bits(part.problem.dropout.sequences);
    }
    const Attended want = kComposite.forward(part), got = kNarrow.forward(narrow_part);
    expect_close(got.out, want.out, kTwin, "out");
    const at::Tensor seen = want.lse.isfinite();
    EXPECT_TRUE(at::equal(got.lse.isfinite(), seen));
    expect_close(got.lse.masked_select(seen), want.lse.masked_select(seen), kTwin, "lse");
    const at::Tensor dout = at::randn(want.out.sizes());
    const AttentionGradients d = kComposite.backward(part, dout, want);
    const AttentionGradients narrow_d = kNarrow.backward(narrow_part, dout, got);
    for (const size_t i : {0, 1, 2}) {
      expect_close(narrow_d[i], d[i], kTwin, "gradient " + std::to_string(i));
    }
  }
}

/// The rows of a head and their loss by LibTorch's own operators in fp64.
struct NarrowRows {
  NarrowRows() {
    at::manual_seed(9);
    logits = at::randn({70, 101}).mul_(3.0);
    targets = at::randint(0, 101, {70}, at::kInt);
    targets.slice(0, 5, 9).fill_(-1);
    const at::Tensor x = leaf(logits.to(at::kDouble));
    const at::Tensor all = x.logsumexp(1);
    const at::Tensor mask = targets.ge(0).to(at::kDouble);
    at::Tensor picked =
        x.gather(1, targets.clamp_min(0).to(at::kLong).unsqueeze(1)).squeeze(1) * mask;
    const at::Tensor loss =
        ((all - picked) * mask + all.square() * mask * kZ).mul(weights()).sum();
    backward(loss, at::ones({}, at::kDouble));
    lse = all.detach();
    of_targets = picked.detach();
    gradient = x.grad();
  }
  static at::Tensor weights() { return at::arange(70, at::kDouble).div(70.0).sub(0.2); }

  static constexpr double kZ = 1e-3;
  at::Tensor logits, targets, lse, of_targets, gradient;
};

TEST(NarrowLoss, ComparesColumnsInPlaceOfGathering) {
  const NarrowRows rows;
  const narrow::TargetColumns columns(rows.targets, 0, 101);
  const at::Tensor lse = narrow::log_sum_exp(rows.logits);
  expect_close(lse, rows.lse, kTwin, "lse");
  expect_close(columns.picked(rows.logits), rows.of_targets, kTwin, "logits of targets");
  const at::Tensor scale = (NarrowRows::weights() * rows.targets.ge(0)).to(at::kFloat);
  expect_close(columns.gradient(rows.logits, lse, scale, NarrowRows::kZ), rows.gradient,
               kTwin, "gradient");
}

TEST(NarrowLoss, FindsTheTargetsOfAPartOfTheVocabulary) {
  const NarrowRows rows;
  at::Tensor sum = at::zeros({70});
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 34}, {34, 68}, {68, 101}}) {
    const at::Tensor part = rows.logits.narrow(1, begin, end - begin);
    sum += narrow::TargetColumns(rows.targets, begin, end - begin).picked(part);
  }
  expect_close(sum, rows.of_targets, kTwin, "sum of parts");
}

TEST(NarrowSums, OfBlocksAddUpToTheSum) {
  for (const int64_t n : {0, 1, 256, 1000}) {
    const at::Tensor x = at::randn({n});
    const at::Tensor sums = narrow::block_sums(x);
    EXPECT_EQ(sums.scalar_type(), at::kFloat);
    EXPECT_EQ(sums.numel(), n == 0 ? 1 : (n + 255) / 256);
    EXPECT_NEAR(sums.to(at::kDouble).sum().item<double>(),
                x.to(at::kDouble).sum().item<double>(), 1e-5);
  }
}

TEST(NarrowSums, ByGroupLeaveOutTheLastNumber) {
  const at::Tensor values = at::tensor({1.0F, 2.0F, 4.0F, 8.0F, 16.0F});
  const at::Tensor group = at::tensor({1, 0, 2, 1, 2}, at::kInt);
  EXPECT_TRUE(
      at::equal(narrow::sum_by_group(values, group, 2), at::tensor({2.0F, 9.0F})));
}

TEST(NarrowSums, OfNoScoresAreMinusInfinity) {
  const float none = -std::numeric_limits<float>::infinity();
  const at::Tensor x = at::tensor({none, none, 0.0F, none}).view({2, 2});
  EXPECT_TRUE(at::equal(narrow::log_sum_exp(x), at::tensor({none, 0.0F})));
}

}  // namespace
}  // namespace longhaul::ops
