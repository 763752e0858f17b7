#include <omp.h>

#include <array>
#include <optional>

#include "longhaul/base/random.h"
#include "tests/support/kernel_cases.h"

namespace longhaul::kernels::testing {
namespace {

using Doubles = std::vector<double>;
using Isas = std::vector<system::Isa>;

constexpr int64_t kFirstHead = 5;

/// An attention's sizes and data; q, k and v lie in wider, strided buffers.
template <typename T>
struct Problem {
  int64_t B, S, offset, Hq, Hkv, D;
  std::vector<int32_t> document_start;  // empty: no limit

  int64_t keys() const { return offset + S; }
  /// Returns the strides of a tensor with room for one more head, which is not dense.
  AttentionStrides wide(int64_t tokens, int64_t heads) const {
    return attention_strides(tokens, heads + 1, D);
  }
  std::vector<T> q, k, v, dout;
  int64_t window = int64_t{1} << 62;
  std::vector<int32_t> document_end = {};  // empty: causal
  std::vector<int64_t> sequences = {};     // empty: nothing is dropped
  Draws draws = {};
  std::optional<float> scale = {};  // factor of the scores; absent: 1 / sqrt(D)

  void fill() {
    q = random_values<T>(B * S * (Hq + 1) * D, 1);
    k = random_values<T>(B * keys() * (Hkv + 1) * D, 2);
    v = random_values<T>(B * keys() * (Hkv + 1) * D, 3);
    dout = random_values<T>(B * S * Hq * D, 4);
  }
  AttentionShape shape() const {
    return {B,
            S,
            keys(),
            Hq,
            Hkv,
            D,
            offset,
            scale.value_or(1.0F / std::sqrt(static_cast<float>(D))),
            document_start.empty() ? nullptr : document_start.data(),
            0,
            window,
            document_end.empty() ? nullptr : document_end.data(),
            {draws, sequences.empty() ? nullptr : sequences.data(), kFirstHead}};
  }
  int64_t start(int64_t b, int64_t i) const {
    const int64_t document =
        document_start.empty() ? 0 : document_start[static_cast<size_t>(b * S + i)];
    return std::max(document, offset + i + 1 - window);
  }
  int64_t end(int64_t b, int64_t i) const {
    return document_end.empty() ? offset + i + 1
                                : document_end[static_cast<size_t>(b * S + i)];
  }
  /// Returns the factor of a probability, which is 0 or the scale by the rule of Draws.
  double factor(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (sequences.empty()) return 1.0;
    const int64_t sequence = sequences[static_cast<size_t>(b)];
    const auto word = [](int64_t lower, int64_t upper) {
      return static_cast<uint64_t>(lower) | static_cast<uint64_t>(upper) << 32;
    };
    const auto drawn =
        philox(draws.key, word(j / 4, offset + i),
               word(sequence & 0xFFFFFFFF, sequence >> 32 << 16 | (kFirstHead + h)));
    const bool kept = drawn[static_cast<size_t>(j % 4)] >= draws.threshold;
    return kept ? static_cast<double>(draws.scale) : 0.0;
  }
};

double at(const auto& x, const AttentionStrides& s, int64_t b, int64_t t, int64_t h,
          int64_t d) {
  const auto i = static_cast<size_t>(b * s.batch + t * s.token + h * s.head + d);
  if constexpr (std::is_same_v<std::decay_t<decltype(x[0])>, double>) {
    return x[i];
  } else {
    return static_cast<double>(widen(x[i]));
  }
}

struct Reference {
  Doubles out, lse, dq, dk, dv;
};

/// Adds one query's result, lse and gradients to the reference.
template <typename T>
void reference_row(const Problem<T>& p, int64_t b, int64_t i, int64_t h, Reference& r) {
  const auto sq = p.wide(p.S, p.Hq);
  const auto sk = p.wide(p.keys(), p.Hkv);
  const auto so = attention_strides(p.S, p.Hq, p.D);
  const auto sd = attention_strides(p.keys(), p.Hkv, p.D);
  const int64_t g = h / (p.Hq / p.Hkv);
  const double scale = p.scale.value_or(1.0F / std::sqrt(static_cast<float>(p.D)));
  const int64_t first = p.start(b, i);
  const int64_t count = std::max<int64_t>(0, p.end(b, i) - first);
  Doubles score(static_cast<size_t>(count));
  double total = 0.0;
  for (int64_t j = 0; j < count; ++j) {
    double s = 0.0;
    for (int64_t d = 0; d < p.D; ++d) {
      s += at(p.q, sq, b, i, h, d) * at(p.k, sk, b, first + j, g, d);
    }
    score[static_cast<size_t>(j)] = std::exp(s * scale);
    total += score[static_cast<size_t>(j)];
  }
  if (count == 0) return;
  r.lse[static_cast<size_t>((b * p.Hq + h) * p.S + i)] = std::log(total);
  Doubles dp(static_cast<size_t>(count));
  double delta = 0.0;
  for (int64_t j = 0; j < count; ++j) {
    double& weight = score[static_cast<size_t>(j)];
    weight /= total;
    const double factor = p.factor(b, h, i, first + j);
    for (int64_t d = 0; d < p.D; ++d) {
      const double v = at(p.v, sk, b, first + j, g, d);
      const double dy = at(p.dout, so, b, i, h, d);
      r.out[static_cast<size_t>(b * so.batch + i * so.token + h * so.head + d)] +=
          weight * factor * v;
      r.dv[static_cast<size_t>(b * sd.batch + (first + j) * sd.token + g * sd.head +
                               d)] += weight * factor * dy;
      dp[static_cast<size_t>(j)] += factor * v * dy;
    }
    delta += weight * dp[static_cast<size_t>(j)];
  }
  for (int64_t j = 0; j < count; ++j) {
    const auto index = static_cast<size_t>(j);
    const double ds = score[index] * (dp[index] - delta) * scale;
    for (int64_t d = 0; d < p.D; ++d) {
      r.dq[static_cast<size_t>(b * so.batch + i * so.token + h * so.head + d)] +=
          ds * at(p.k, sk, b, first + j, g, d);
      r.dk[static_cast<size_t>(b * sd.batch + (first + j) * sd.token + g * sd.head +
                               d)] += ds * at(p.q, sq, b, i, h, d);
    }
  }
}

template <typename T>
Reference reference(const Problem<T>& p) {
  const auto queries = static_cast<size_t>(p.B * p.S * p.Hq);
  const auto keys = static_cast<size_t>(p.B * p.keys() * p.Hkv * p.D);
  const size_t dim = static_cast<size_t>(p.D);
  Reference r{Doubles(queries * dim), Doubles(queries), Doubles(queries * dim),
              Doubles(keys), Doubles(keys)};
  for (int64_t b = 0; b < p.B; ++b) {
    for (int64_t i = 0; i < p.S; ++i) {
      for (int64_t h = 0; h < p.Hq; ++h) reference_row(p, b, i, h, r);
    }
  }
  return r;
}

template <typename T>
struct Result {
  std::vector<T> out, dq, dk, dv;
  std::vector<float> lse;
};

template <typename T>
Result<T> run(const Problem<T>& p, system::Isa isa) {
  // Results begin as NaN, so that a value which a kernel leaves unwritten shows.
  const auto blank = [](int64_t count, auto value) {
    narrow(std::nanf(""), &value);
    return std::vector<decltype(value)>(static_cast<size_t>(count), value);
  };
  Result<T> r{blank(p.B * p.S * p.Hq * p.D, T{}), blank(p.B * p.S * p.Hq * p.D, T{}),
              blank(p.B * p.keys() * p.Hkv * p.D, T{}),
              blank(p.B * p.keys() * p.Hkv * p.D, T{}), blank(p.B * p.Hq * p.S, float{})};
  const auto queries = attention_strides(p.S, p.Hq, p.D);
  const auto keys = attention_strides(p.keys(), p.Hkv, p.D);
  const AttentionInput<T> q{p.q.data(), p.wide(p.S, p.Hq)};
  const AttentionInput<T> k{p.k.data(), p.wide(p.keys(), p.Hkv)};
  const AttentionInput<T> v{p.v.data(), p.wide(p.keys(), p.Hkv)};
  run(AttentionForward<T>{p.shape(), q, k, v, {r.out.data(), queries}, r.lse.data()},
      isa);
  run(AttentionBackward<T>{p.shape(),
                           q,
                           k,
                           v,
                           {r.out.data(), queries},
                           {p.dout.data(), queries},
                           r.lse.data(),
                           {r.dq.data(), queries},
                           {r.dk.data(), keys},
                           {r.dv.data(), keys}},
      isa);
  return r;
}

/// Compares lse. For a query without keys `got` has minus infinity, and `want` has 0.
void expect_lse_close(std::vector<float> got, const Doubles& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (want[i] == 0.0) {
      EXPECT_EQ(got[i], -INFINITY) << i;
      got[i] = 0.0F;
    }
  }
  EXPECT_LT(distance(got, want), kSums);
}

/// Compares the results of every instruction set, of keys in `parts` where they are
/// given.
template <typename T>
void expect_close(Problem<T> p, const Isas& isas, const auto&... parts) {
  p.fill();
  const Reference want = reference(p);
  for (const system::Isa isa : isas) {
    SCOPED_TRACE(system::isa_name(isa));
    const auto got = run(p, parts..., isa);
    // Probabilities and gradients of scores are rounded once, and the result once.
    const double once = kRounding<T>;
    EXPECT_LT(distance(got.out, want.out), 2 * once + kSums);
    expect_lse_close(got.lse, want.lse);
    EXPECT_LT(distance(got.dv, want.dv), 2 * once + kSums);
    // ds = p (dp - delta) also carries the rounding of out, through delta.
    EXPECT_LT(distance(got.dq, want.dq), 4 * once + kSums);
    EXPECT_LT(distance(got.dk, want.dk), 4 * once + kSums);
  }
}

TEST(Attention, EqualsTheReferenceOnOddSizes) {
  for_each_type([](auto t, const Isas& isas) {
    using T = decltype(t);
    expect_close<T>({1, 3, 0, 1, 1, 8, {}, {}, {}, {}, {}}, isas);
    expect_close<T>({2, 37, 0, 3, 1, 64, {}, {}, {}, {}, {}}, isas);
    expect_close<T>({1, 130, 0, 2, 2, 128, {}, {}, {}, {}, {}}, isas);
    expect_close<T>({1, 193, 0, 4, 2, 40, {}, {}, {}, {}, {}}, isas);
    expect_close<T>({1, 67, 0, 2, 1, 256, {}, {}, {}, {}, {}}, isas);
    expect_close<T>({1, 261, 0, 2, 1, 72, {}, {}, {}, {}, {}}, isas);
  });
}

TEST(Attention, SeesCachedKeys) {
  for_each_type([](auto t, const Isas& isas) {
    using T = decltype(t);
    expect_close<T>({2, 1, 77, 4, 2, 64, {}, {}, {}, {}, {}}, isas);
    expect_close<T>({1, 65, 131, 2, 1, 32, {}, {}, {}, {}, {}}, isas);
  });
}

/// Returns the starts of documents of growing length, [batch, queries].
std::vector<int32_t> documents(int64_t batch, int64_t queries) {
  std::vector<int32_t> out;
  for (int64_t b = 0; b < batch; ++b) {
    int64_t begin = 0;
    int64_t length = 3 + b;
    for (int64_t i = 0; i < queries; ++i) {
      if (i == begin + length) {
        begin = i;
        length = 2 * length + 1;
      }
      out.push_back(static_cast<int32_t>(begin));
    }
  }
  return out;
}

TEST(Attention, StopsAtDocumentStarts) {
  for_each_type([](auto t, const Isas& isas) {
    using T = decltype(t);
    expect_close<T>({2, 300, 0, 2, 1, 64, documents(2, 300), {}, {}, {}, {}}, isas);
  });
}

TEST(Attention, SeesAsManyKeysAsItsWindowHas) {
  for_each_type([](auto t, const Isas& isas) {
    using T = decltype(t);
    for (const int64_t window : {2, 13, 64, 200, 299, 300}) {
      SCOPED_TRACE(window);
      expect_close<T>({1, 300, 0, 2, 1, 32, {}, {}, {}, {}, {}, window}, isas);
      expect_close<T>({1, 30, 131, 2, 2, 16, {}, {}, {}, {}, {}, window}, isas);
      expect_close<T>({2, 150, 0, 2, 1, 8, documents(2, 150), {}, {}, {}, {}, window},
                      isas);
    }
  });
}

/// Returns one past the last key of each query's document, for documents().
std::vector<int32_t> document_ends(int64_t batch, int64_t queries) {
  std::vector<int32_t> out = documents(batch, queries);
  for (int64_t b = 0; b < batch; ++b) {
    auto end = static_cast<int32_t>(queries);
    for (int64_t i = queries - 1; i >= 0; --i) {
      int32_t& value = out[static_cast<size_t>(b * queries + i)];
      const bool first = value == i;
      value = end;
      if (first) end = static_cast<int32_t>(i);
    }
  }
  return out;
}

/// Returns problems that are not causal. Queries see the whole sequence, or the keys
/// before the padding (which has queries too), or a range of keys, perhaps an empty one.
template <typename T>
std::vector<Problem<T>> two_sided_problems(int64_t queries, int64_t offset, int64_t D) {
  const auto n = static_cast<size_t>(2 * queries);
  const auto keys = static_cast<int32_t>(offset + queries);
  const Problem<T> plain{2, queries, offset, 4, 2, D, {}, {}, {}, {}, {}};
  std::vector<Problem<T>> out(3, plain);
  out[0].document_end = std::vector<int32_t>(n, keys);
  out[1].document_end = std::vector<int32_t>(n, keys - 15);
  out[2].document_start.resize(n);
  out[2].document_end.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const auto start = static_cast<int32_t>(i * 37 % static_cast<size_t>(keys));
    out[2].document_start[i] = start;
    out[2].document_end[i] =
        std::min(keys, start + static_cast<int32_t>(i * 11 % 90) - (i % 5 == 0 ? 9 : 0));
  }
  return out;
}

TEST(Attention, SeesLaterKeysUpToDocumentEnds) {
  for_each_type([](auto t, const Isas& isas) {
    using T = decltype(t);
    for (const auto& [queries, offset, D] : std::vector<std::array<int64_t, 3>>{
             {20, 0, 8}, {150, 0, 64}, {261, 0, 40}, {30, 131, 24}}) {
      for (const Problem<T>& p : two_sided_problems<T>(queries, offset, D)) {
        expect_close<T>(p, isas);
      }
    }
    Problem<T> p{2, 300, 0, 2, 1, 64, documents(2, 300), {}, {}, {}, {}};
    p.document_end = document_ends(2, 300);
    expect_close<T>(p, isas);
  });
}

/// Returns the problem with probabilities dropped.
template <typename T>
Problem<T> dropped(Problem<T> p, double probability) {
  p.sequences = {12, (int64_t{3} << 32) + 7};
  p.draws = {0x299f31d0a4093822, static_cast<uint32_t>(probability * 0x1p32),
             static_cast<float>(1.0 / (1.0 - probability))};
  return p;
}

TEST(Attention, DropsProbabilities) {
  for_each_type([](auto t, const Isas& isas) {
    using T = decltype(t);
    for (const double probability : {0.1, 0.7}) {
      SCOPED_TRACE(probability);
      expect_close<T>(dropped<T>({2, 150, 0, 4, 2, 64, {}, {}, {}, {}, {}}, probability),
                      isas);
      expect_close<T>(
          dropped<T>({2, 70, 131, 2, 1, 24, {}, {}, {}, {}, {}, 50}, probability), isas);
      for (const Problem<T>& p : two_sided_problems<T>(150, 0, 40)) {
        expect_close<T>(dropped(p, probability), isas);
      }
    }
  });
}

TEST(Attention, ReadsNoBlockOfKeysOutsideOfTheWindow) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    Problem<T> p{1, 300, 0, 1, 1, 16, {}, {}, {}, {}, {}, 20};
    p.fill();
    // Queries from 256 on see keys from 237 on, whose block begins at 192.
    const auto strides = p.wide(p.keys(), p.Hkv);
    for (int64_t i = 0; i < 192 * strides.token; ++i) {
      narrow(std::nanf(""), &p.k[static_cast<size_t>(i)]);
      narrow(std::nanf(""), &p.v[static_cast<size_t>(i)]);
    }
    const Result<T> r = run(p, isa);
    for (size_t i = 256 * 16; i < 300 * 16; ++i) {
      ASSERT_TRUE(std::isfinite(widen(r.out[i]))) << i;
      ASSERT_TRUE(std::isfinite(widen(r.dq[i]))) << i;
    }
    ASSERT_TRUE(std::isnan(widen(r.out[100 * 16])));
  });
}

TEST(Attention, KeepsLargeScoresFinite) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    Problem<T> p{1, 150, 0, 1, 1, 64, {}, {}, {}, {}, {}};
    p.fill();
    p.q = random_values<T>(p.B * p.S * (p.Hq + 1) * p.D, 5, 60.0F);
    for (T value : run(p, isa).out) ASSERT_TRUE(std::isfinite(widen(value)));
  });
}

TEST(Attention, GivesZeroGradientsToKeysNobodySees) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    Problem<T> p{1, 20, 0, 1, 1, 16, {}, {}, {}, {}, {}};
    p.fill();
    const auto queries = attention_strides(20, 1, 16);
    AttentionShape shape = p.shape();
    shape.queries = 5;  // 5 queries beside 20 keys
    std::vector<T> out(5 * 16), dq(5 * 16), dk(20 * 16), dv(20 * 16);
    std::vector<float> lse(5);
    const AttentionInput<T> x{p.q.data(), queries};
    run(AttentionForward<T>{shape, x, x, x, {out.data(), queries}, lse.data()}, isa);
    run(AttentionBackward<T>{shape,
                             x,
                             x,
                             x,
                             {out.data(), queries},
                             x,
                             lse.data(),
                             {dq.data(), queries},
                             {dk.data(), queries},
                             {dv.data(), queries}},
        isa);
    for (size_t i = 0; i < dk.size(); ++i) {
      ASSERT_EQ(widen(dv[i]) != 0.0F, i < 5 * 16) << i;
      if (i < 5 * 16) continue;
      ASSERT_EQ(widen(dk[i]), 0.0F) << i;
    }
  });
}

struct KeyRange {
  int64_t begin, end;  ///< a part [begin, end) of an attention's keys
};

struct PartsResult {
  std::vector<float> out, lse, dq, dk, dv;
};

/// Runs the problem with its keys in parts, in the order given.
template <typename T>
PartsResult run(const Problem<T>& p, const std::vector<KeyRange>& parts,
                system::Isa isa) {
  const auto zeros = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n)); };
  const int64_t queries = p.B * p.S * p.Hq;
  const int64_t keys = p.B * p.keys() * p.Hkv * p.D;
  PartsResult r{zeros(queries * p.D),
                std::vector<float>(static_cast<size_t>(queries), -INFINITY),
                zeros(queries * p.D), zeros(keys), zeros(keys)};
  const auto dense = attention_strides(p.S, p.Hq, p.D);
  const auto sums = attention_strides(p.keys(), p.Hkv, p.D);
  const auto wide = p.wide(p.keys(), p.Hkv);
  const AttentionInput<T> q{p.q.data(), p.wide(p.S, p.Hq)};
  const auto shape = [&](KeyRange part) {
    AttentionShape s = p.shape();
    s.keys = part.end - part.begin;
    s.query_offset = p.offset - part.begin;
    s.first_key = part.begin;
    return s;
  };
  const auto from = [](auto* data, const AttentionStrides& s, int64_t token) {
    return data + token * s.token;
  };
  for (const KeyRange part : parts) {
    run(AttentionForward<T, Results::GoOn>{shape(part),
                                           q,
                                           {from(p.k.data(), wide, part.begin), wide},
                                           {from(p.v.data(), wide, part.begin), wide},
                                           {r.out.data(), dense},
                                           r.lse.data()},
        isa);
  }
  std::vector<T> out(r.out.size());
  for (size_t i = 0; i < out.size(); ++i) narrow(r.out[i], &out[i]);
  for (const KeyRange part : parts) {
    run(AttentionBackward<T, Results::GoOn>{shape(part),
                                            q,
                                            {from(p.k.data(), wide, part.begin), wide},
                                            {from(p.v.data(), wide, part.begin), wide},
                                            {out.data(), dense},
                                            {p.dout.data(), dense},
                                            r.lse.data(),
                                            {r.dq.data(), dense},
                                            {from(r.dk.data(), sums, part.begin), sums},
                                            {from(r.dv.data(), sums, part.begin), sums}},
        isa);
  }
  return r;
}

TEST(Attention, TakesKeysInPartsOfAnyLengthAndOrder) {
  for_each_type([](auto t, const Isas& isas) {
    using T = decltype(t);
    // Key ranges lie before, inside, after and across query blocks. Most are unaligned.
    const std::vector<KeyRange> parts{{0, 51}, {51, 64}, {64, 65}, {65, 149}, {149, 181}};
    const std::vector<KeyRange> backwards(parts.rbegin(), parts.rend());
    expect_close<T>({1, 181, 0, 4, 2, 40, {}, {}, {}, {}, {}}, isas, parts);
    expect_close<T>({1, 181, 0, 1, 1, 64, {}, {}, {}, {}, {}}, isas, backwards);
    expect_close<T>({1, 31, 150, 2, 1, 64, {}, {}, {}, {}, {}}, isas, parts);
    expect_close<T>({2, 181, 0, 2, 1, 24, documents(2, 181), {}, {}, {}, {}}, isas,
                    parts);
    expect_close<T>({1, 181, 0, 1, 1, 24, documents(1, 181), {}, {}, {}, {}}, isas,
                    backwards);
    for (const int64_t window : {2, 20, 70}) {
      expect_close<T>({1, 181, 0, 2, 1, 24, {}, {}, {}, {}, {}, window}, isas, parts);
      expect_close<T>({2, 181, 0, 1, 1, 24, documents(2, 181), {}, {}, {}, {}, window},
                      isas, backwards);
    }
    Problem<T> p{2, 181, 0, 1, 1, 24, {}, {}, {}, {}, {}, 70};
    p.scale = 0.37F;
    expect_close<T>(p, isas, parts);
    expect_close<T>(dropped(p, 0.3), isas);
    // The third and fourth part begin in the midst of four keys that share a draw.
    expect_close<T>(dropped<T>({2, 181, 0, 2, 1, 24, {}, {}, {}, {}, {}}, 0.3), isas,
                    parts);
    for (const Problem<T>& one : two_sided_problems<T>(150, 31, 24)) {
      expect_close<T>(one, isas, parts);
      expect_close<T>(dropped(one, 0.3), isas, backwards);
    }
  });
}

TEST(Attention, GivesNothingToQueriesThatSeeNoKey) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    // Queries before 40, and those from 90 on, see none of the keys [40, 80).
    Problem<T> p{1, 120, 0, 1, 1, 16, std::vector<int32_t>(120, 0), {}, {}, {}, {}};
    for (size_t i = 90; i < 120; ++i) p.document_start[i] = 80;
    p.fill();
    AttentionShape shape = p.shape();
    shape.keys = 40;
    shape.query_offset = -40;
    shape.first_key = 40;
    const AttentionStrides dense = attention_strides(120, 1, 16);
    std::vector<T> out(120 * 16), dq(120 * 16), dk(40 * 16), dv(40 * 16);
    std::vector<float> lse(120);
    const AttentionInput<T> x{p.q.data(), dense};
    run(AttentionForward<T>{shape, x, x, x, {out.data(), dense}, lse.data()}, isa);
    run(AttentionBackward<T>{shape,
                             x,
                             x,
                             x,
                             {out.data(), dense},
                             x,
                             lse.data(),
                             {dq.data(), dense},
                             {dk.data(), dense},
                             {dv.data(), dense}},
        isa);
    for (size_t i = 0; i < 120; ++i) {
      const bool none = i < 40 || i >= 90;
      ASSERT_EQ(std::isinf(lse[i]), none) << i;
      ASSERT_EQ(widen(out[i * 16]) == 0.0F, none) << i;
      // Query 40 sees one key only: its softmax is 1, whatever the score.
      if (i == 40) continue;
      ASSERT_EQ(widen(dq[i * 16]) == 0.0F, none) << i;
    }
    for (const T value : dk) ASSERT_TRUE(std::isfinite(widen(value)));
    for (const T value : dv) ASSERT_TRUE(widen(value) != 0.0F);
  });
}

TEST(Attention, DependsNeitherOnTheRunNorOnTheThreads) {
  const int before = omp_get_max_threads();
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    const Problem<T> plain{1, 290, 0, 6, 2, 64, {}, {}, {}, {}, {}};
    for (Problem<T> p : {plain, dropped(plain, 0.1)}) {
      p.fill();
      omp_set_num_threads(1);
      const Result<T> one = run(p, isa);
      for (int threads : {1, 2, 3, 5}) {
        omp_set_num_threads(threads);
        const Result<T> other = run(p, isa);
        EXPECT_TRUE(same_bits(one.out, other.out)) << threads;
        EXPECT_TRUE(same_bits(one.lse, other.lse)) << threads;
        EXPECT_TRUE(same_bits(one.dq, other.dq)) << threads;
        EXPECT_TRUE(same_bits(one.dk, other.dk)) << threads;
        EXPECT_TRUE(same_bits(one.dv, other.dv)) << threads;
      }
    }
  });
  omp_set_num_threads(before);
}

TEST(Attention, NamesAHeadDimItCannotTake) {
  Problem<float> p{1, 2, 0, 1, 1, 8, {}, {}, {}, {}, {}};
  p.fill();
  AttentionShape shape = p.shape();
  shape.head_dim = 12;
  const AttentionInput<float> x{p.q.data(), attention_strides(2, 1, 8)};
  float out[16];
  float lse[2];
  EXPECT_THROW(run(AttentionForward<float>{shape, x, x, x, {out, x.strides}, lse}),
               std::runtime_error);
}

}  // namespace
}  // namespace longhaul::kernels::testing
