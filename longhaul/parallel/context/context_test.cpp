// Compares context parallelism, over ranks that are threads, with attention on one rank.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "longhaul/ops/attention/attention.h"
#include "longhaul/parallel/context/attention_core.h"
#include "longhaul/parallel/context/local_attention.h"
#include "longhaul/parallel/context/whole_keys.h"
#include "longhaul/parallel/recompute/recompute.h"
#include "tests/support/context_ranks.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/parameters.h"

namespace longhaul::parallel {
namespace {

using ops::expect_close;

struct Case {
  int ranks;
  int64_t batch, seq, query_heads, key_heads, dim;
  bool documents;
  at::ScalarType type = at::kFloat;
  bool fused = true;
  std::optional<int64_t> window = {};
  bool later = false;  ///< queries also see later keys
  double dropout = 0.0;
  std::optional<double> scale = {};  ///< scale of the scores
  double cap = 0.0;                  ///< cap of the scores
  bool whole_keys = false;           ///< in the form for devices that write into no view
};

using RankBody = std::function<void(comm::Communicator& group)>;

/// Runs `body` on every rank with one processor thread each, since several pools of
/// threads would compete.
void on_each_rank(int ranks, const RankBody& body) {
  comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
    at::set_num_threads(1);
    body(*world);
  });
}

/// Inputs for whole sequences, which the ranks cut up.
struct Problem {
  at::Tensor q, k, v, dout, start, end;
  std::optional<int64_t> window;
  ops::Dropout dropout;
  std::optional<double> scale;
  double cap;

  ops::AttentionProblem mask() const {
    return {{scale, window, cap}, start, end, {}, dropout};
  }
};

/// Returns starts of documents that differ in every row: documents of one token,
/// documents across the edges of chunks, and documents that span several chunks.
at::Tensor document_starts(int64_t batch, int64_t seq) {
  at::Tensor start = at::zeros({batch, seq}, at::kInt);
  for (int64_t b = 0; b < batch; ++b) {
    for (const int64_t tenth : {1L, 3L, 4L, 9L}) {
      const int64_t cut = tenth * seq / 10 + b + 1;
      for (const int64_t at : {cut, cut + 1}) {
        start[b].narrow(0, at, seq - at).fill_(at);
      }
    }
  }
  return start;
}

/// Returns the ends of the documents of document_starts(), or of whole sequences with
/// padding.
at::Tensor document_ends(const Case& c) {
  at::Tensor end = at::full({c.batch, c.seq}, c.seq, at::kInt);
  for (int64_t b = 0; b < c.batch; ++b) {
    if (!c.documents) {
      end[b].fill_(c.seq - 11 * b);
      continue;
    }
    const at::Tensor start = document_starts(c.batch, c.seq)[b];
    for (int64_t i = c.seq - 2; i >= 0; --i) {
      const bool last = start[i].item<int>() != start[i + 1].item<int>();
      end[b][i] = last ? at::scalar_tensor(i + 1, at::kInt) : end[b][i + 1];
    }
  }
  return end;
}

Problem problem_of(const Case& c) {
  at::manual_seed(7);
  const auto random = [&](int64_t heads) {
    return at::randn({c.batch, c.seq, heads, c.dim}).to(c.type);
  };
  Problem p{random(c.query_heads),
            random(c.key_heads),
            random(c.key_heads),
            random(c.query_heads),
            {},
            {},
            c.window,
            {},
            c.scale,
            c.cap};
  if (c.documents) p.start = document_starts(c.batch, c.seq);
  if (c.later) p.end = document_ends(c);
  p.dropout.probability = c.dropout;
  p.dropout.key = 0x299f31d0a4093822;
  p.dropout.sequences = at::arange(c.batch, at::kLong).mul_(1L << 33).add_(5);
  return p;
}

struct Result {
  at::Tensor out, dq, dk, dv;
};

Result run(const Problem& p, const nn::AttentionCore& core, bool fused) {
  const at::Tensor q = ops::leaf(p.q), k = ops::leaf(p.k), v = ops::leaf(p.v);
  const at::Tensor out = core(q, {k, v}, p.mask(), fused);
  ops::backward(out, p.dout);
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

Result one_rank(const Case& c) {
  at::set_num_threads(1);
  return run(problem_of(c), ops::attention, false);
}

/// Returns the part of a tensor that holds a rank's positions.
using Take =
    std::function<at::Tensor(const layout::ContextLayout&, const at::Tensor&, int rank)>;

at::Tensor zigzag(const layout::ContextLayout& layout, const at::Tensor& x, int rank) {
  return take_positions(layout, x, rank);
}

Result on_ranks(const Case& c, ContextKind kind, const Take& take = zigzag) {
  const Problem whole = problem_of(c);
  Result all{at::empty_like(whole.q), at::empty_like(whole.q), at::empty_like(whole.k),
             at::empty_like(whole.v)};
  on_each_rank(c.ranks, [&](comm::Communicator& group) {
    const layout::ContextLayout layout(c.seq, c.ranks);
    const auto cut = [&](const at::Tensor& x) {
      return x.defined() ? take(layout, x, group.rank()) : x;
    };
    const Problem local{cut(whole.q),     cut(whole.k),   cut(whole.v), cut(whole.dout),
                        cut(whole.start), cut(whole.end), c.window,     whole.dropout,
                        c.scale,          c.cap};
    const nn::AttentionCore core =
        c.whole_keys ? std::bind_front(whole_keys_attention, std::ref(group))
                     : make_attention_core(kind, group);
    const Result r = run(local, core, c.fused);
    put_positions(layout, r.out, group.rank(), all.out);
    put_positions(layout, r.dq, group.rank(), all.dq);
    put_positions(layout, r.dk, group.rank(), all.dk);
    put_positions(layout, r.dv, group.rank(), all.dv);
  });
  return all;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

class Context : public ::testing::TestWithParam<ContextKind> {
 protected:
  void expect_twins(const Case& c) {
    SCOPED_TRACE(fmt::format(
        "{} ranks, {} documents, {}, {}, window {}, {}, dropout {}, scale {}", c.ranks,
        c.documents ? "with" : "without", c.type == at::kFloat ? "fp32" : "bf16",
        c.fused ? "fused" : "composite", c.window.value_or(0),
        c.later ? "later keys too" : "causal", c.dropout, c.scale.value_or(0.0)));
    const Result want = one_rank(c), got = on_ranks(c, GetParam());
    const double tolerance = c.type == at::kFloat ? 1e-5 : 3e-2;
    expect_close(got.out, want.out, tolerance, "out");
    expect_close(got.dq, want.dq, tolerance, "dq");
    expect_close(got.dk, want.dk, tolerance, "dk");
    expect_close(got.dv, want.dv, tolerance, "dv");
  }
};

INSTANTIATE_TEST_SUITE_P(All, Context,
                         ::testing::Values(ContextKind::Ring, ContextKind::Gather),
                         [](const auto& which) {
                           return which.param == ContextKind::Ring ? "Ring" : "Gather";
                         });

TEST_P(Context, EqualsAttentionOnOneRank) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool documents : {false, true}) {
      for (const bool fused : {false, true}) {
        expect_twins({ranks, 3, 144, 6, 2, 32, documents, at::kFloat, fused});
        if (documents) {
          expect_twins({ranks, 2, 144, 4, 4, 32, true, at::kBFloat16, fused});
        }
      }
    }
  }
}

TEST_P(Context, EqualsAttentionOnOneRankWithChunksOfManyBlocks) {
  for (const bool documents : {false, true}) {
    expect_twins({3, 1, 792, 4, 1, 64, documents});
    expect_twins({2, 2, 528, 4, 2, 64, documents, at::kBFloat16});
  }
}

TEST_P(Context, EqualsAttentionOnOneRankWithinAWindow) {
  // Windows within a chunk, over its edge, over several chunks, and over all but one key.
  for (const int64_t window : {2, 5, 23, 36, 37, 100, 143}) {
    for (const int ranks : {2, 3, 4}) {
      expect_twins({ranks, 2, 144, 4, 2, 32, false, at::kFloat, true, window});
      expect_twins({ranks, 2, 144, 4, 2, 32, true, at::kFloat, ranks != 3, window});
    }
  }
}

TEST_P(Context, EqualsAttentionOnOneRankWithLaterKeysAndDropout) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool documents : {false, true}) {
      Case c{ranks, 2, 144, 4, 2, 32, documents};
      c.fused = ranks != 3;
      c.later = true;
      expect_twins(c);
      c.dropout = 0.2;
      expect_twins(c);
      c.type = at::kBFloat16;
      expect_twins(c);
      c.later = false;
      expect_twins(c);
    }
  }
}

TEST_P(Context, EqualsAttentionOnOneRankWithAScaleOfItsOwn) {
  for (const bool fused : {false, true}) {
    Case c{3, 2, 144, 4, 2, 32, true, at::kFloat, fused, 37};
    c.scale = 0.5;
    expect_twins(c);
    c.cap = 0.7;
    expect_twins(c);
    c.dropout = 0.2;
    expect_twins(c);
    c.type = at::kBFloat16;
    expect_twins(c);
  }
}

TEST_P(Context, EqualsAttentionOnOneRankWithWholeKeys) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool documents : {false, true}) {
      Case c{ranks, 2, 144, 4, 2, 32, documents};
      c.whole_keys = true;
      expect_twins(c);
      c.window = 37;
      expect_twins(c);
      c.window.reset();
      c.dropout = 0.2;
      c.later = true;
      expect_twins(c);
      c.type = at::kBFloat16;
      expect_twins(c);
    }
  }
}

TEST_P(Context, GivesTheSameBitsInEveryRun) {
  Case c{4, 2, 240, 6, 2, 64, true, at::kBFloat16};
  c.dropout = 0.1;
  const Result one = on_ranks(c, GetParam());
  for (int i = 0; i < 3; ++i) {
    const Result two = on_ranks(c, GetParam());
    EXPECT_TRUE(at::equal(one.out, two.out));
    EXPECT_TRUE(at::equal(one.dq, two.dq));
    EXPECT_TRUE(at::equal(one.dk, two.dk));
    EXPECT_TRUE(at::equal(one.dv, two.dv));
  }
}

TEST_P(Context, SendsTheBytesThatItsHeaderStates) {
  const Case c{3, 2, 48, 4, 2, 16, false, at::kBFloat16};
  const Problem whole = problem_of(c);
  on_each_rank(c.ranks, [&](comm::Communicator& group) {
    const layout::ContextLayout layout(c.seq, c.ranks);
    const auto cut = [&](const at::Tensor& x) {
      return ops::leaf(take_positions(layout, x, group.rank()));
    };
    const auto sent = [&] { return group.counts().total().bytes; };
    const at::Tensor k = cut(whole.k);
    const int64_t before = sent();
    const at::Tensor out = make_attention_core(GetParam(), group)(
        cut(whole.q), {k, cut(whole.v)}, {}, c.fused);
    const int64_t between = sent();
    ops::backward(out, cut(whole.dout).detach());
    const int64_t peers = c.ranks - 1;
    EXPECT_EQ(between - before, 2 * peers * k.numel() * 2);
    EXPECT_EQ(sent() - between, 2 * peers * k.numel() * (2 + 4));
  });
}

TEST_P(Context, GivesTheSameBitsWhenRecomputed) {
  const Case c{2, 1, 32, 2, 2, 16, false};
  const Problem whole = problem_of(c);
  on_each_rank(c.ranks, [&](comm::Communicator& group) {
    const layout::ContextLayout layout(c.seq, c.ranks);
    const at::Tensor x = take_positions(layout, whole.q, group.rank());
    const at::Tensor dy = take_positions(layout, whole.dout, group.rank());
    const auto core = make_attention_core(GetParam(), group);
    const BlockFunction block = [&](const nn::Tensors& in) {
      return nn::Tensors{core(in[0], {in[0] * 0.5, in[0] + 1.0}, {}, true)};
    };
    const at::Tensor plain = ops::leaf(x), again = ops::leaf(x);
    const at::Tensor y = block({plain})[0], z = recompute(block, {again})[0];
    EXPECT_TRUE(at::equal(y, z));
    ops::backward(y, dy);
    ops::backward(z, dy);
    EXPECT_TRUE(at::equal(plain.grad(), again.grad()));
  });
}

// Each test below plants a fault and checks that its effect exceeds the tolerances of
// this file.

TEST_P(Context, PlantedFaultOfContiguousChunksIsFarOff) {
  const Case c{2, 1, 240, 2, 1, 32, false};
  const Result want = one_rank(c);
  const Result got = on_ranks(
      c, GetParam(),
      [](const layout::ContextLayout& layout, const at::Tensor& x, int rank) {
        return x.narrow(1, rank * layout.local_len(), layout.local_len()).contiguous();
      });
  EXPECT_GT(distance(got.out, want.out), 0.1);
}

TEST(ContextFaults, PlantedFaultOfPartsAddedWithoutRescalingIsFarOff) {
  const Case c{2, 1, 240, 2, 1, 32, false};
  const Problem whole = problem_of(c);
  const layout::ContextLayout layout(c.seq, c.ranks);
  const at::Tensor want = take_positions(layout, one_rank(c).out, 0);
  const LocalAttention local(layout, 0, take_positions(layout, whole.q, 0), {}, true);
  AttentionSums merged = local.begin();
  at::Tensor added = at::zeros_like(want);
  for (int source = 0; source < 2; ++source) {
    const KeptPositions keys{take_positions(layout, whole.k, source),
                             take_positions(layout, whole.v, source)};
    AttentionSums alone = local.begin();
    local.forward(source, keys, alone, [] {});
    local.forward(source, keys, merged, [] {});
    added += alone.out;
  }
  EXPECT_LT(distance(merged.out, want), 1e-5);
  EXPECT_GT(distance(added, want), 0.1);
}

}  // namespace
}  // namespace longhaul::parallel
