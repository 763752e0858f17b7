// These tests compare kernels for a GPU with those of the CPU: norms, rotations, gated
// products, rows and the loss. An embedding's gradient, GELU and the merging of attention
// have no CPU kernel, and are compared with their definitions.
#include <cmath>
#include <limits>
#include <optional>

#include "tests/cuda_host/guarded.h"

namespace longhaul::cuda_host {
namespace {

using kernels::Bf16;
using kernels::testing::activation_and_slope;
using kernels::testing::kActivations;
using kernels::testing::kRounding;
using kernels::testing::kSums;
using kernels::testing::random_values;
using Outputs = std::vector<Output>;

struct Shape {
  int64_t rows, width;
  std::optional<RmsForm> only = {};  // the form of norms that is tried; absent: all
};
/// The shapes give threads no element, one, several, and more than registers hold; rows
/// have whole vectors, tails, and odd starts.
constexpr Shape kShapes[] = {{1, 1},
                             {3, 3},
                             {5, 31},
                             {4, 32},
                             {2, 33},
                             {3, 255},
                             {3, 256},
                             {2, 257},
                             {3, 264},
                             {33, 100},
                             {3, 1000},
                             {1, 2056, RmsForm::WeightAfterCast},
                             {2, 4104, RmsForm::WeightBeforeCast},
                             {1, 8200, RmsForm::OnePlusWeight},
                             {2, 2065, RmsForm::WeightAfterCast}};
/// A shape that takes as much time as all others and runs the same kernels, and wide ones
/// with every form of the norm.
constexpr Shape kLargeShapes[] = {{33, 1000}, {1, 2056}, {2, 4104}, {1, 8200}, {2, 2065}};

struct Heads {
  int64_t tokens, heads, dim;
};

class CudaKernels : public ::testing::TestWithParam<Shape> {
 protected:
  int64_t rows() const { return GetParam().rows; }
  int64_t width() const { return GetParam().width; }
  size_t size() const { return static_cast<size_t>(rows() * width()); }
};
std::string name_of(const ::testing::TestParamInfo<Shape>& info) {
  return std::to_string(info.param.rows) + "x" + std::to_string(info.param.width);
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaKernels, ::testing::ValuesIn(kShapes), name_of);
INSTANTIATE_TEST_SUITE_P(DISABLED_LargeShapes, CudaKernels,
                         ::testing::ValuesIn(kLargeShapes), name_of);

/// Calls body(T{}) for both element types.
template <typename Body>
void for_types(const Body& body) {
  {
    SCOPED_TRACE("fp32");
    body(float{});
  }
  SCOPED_TRACE("bf16");
  body(Bf16{});
}

/// The tolerance for values that are rounded as often as the CPU's: hardly any value
/// differs.
template <typename T>
constexpr double kSameRoundings = kRounding<T> / 8 + kSums;

/// Calls body(form) for every form of the norm, or for `only`.
template <typename Body>
void for_norms(std::optional<RmsForm> only, const Body& body) {
  for (const RmsForm form :
       {RmsForm::WeightAfterCast, RmsForm::WeightBeforeCast, RmsForm::OnePlusWeight}) {
    if (form != only.value_or(form)) continue;
    SCOPED_TRACE(::testing::Message() << "form " << static_cast<int>(form));
    body(form);
  }
}

/// Calls body(T{}, form) for both element types and every form of the norm, or `only`.
template <typename Body>
void for_typed_norms(std::optional<RmsForm> only, const Body& body) {
  for_norms(only, [&](RmsForm form) { for_types([&](auto t) { body(t, form); }); });
}

void expect_rms_norm(int64_t rows, int64_t width, RmsForm form) {
  const auto size = static_cast<size_t>(rows * width);
  for_types([&]<typename T>(T) {
    const auto x = random_values<T>(rows * width, 1);
    const auto dy = random_values<T>(rows * width, 2);
    const auto w = random_values<T>(width, 3);
    expect_same_on_gpu([&](const auto& on) -> Outputs {
      auto in = on.buffer(x);
      auto weight = on.buffer(w);
      auto y = on.buffer(std::vector<T>(size));
      auto inverse = on.buffer(std::vector<float>(static_cast<size_t>(rows)));
      on.run(kernels::RmsNormForward<T>{in.data(), width, weight.data(), 1e-5, rows, 1,
                                        width, y.data(), inverse.data(), nullptr, nullptr,
                                        form});
      auto gradient = on.buffer(dy);
      auto dx = on.buffer(std::vector<T>(size));
      auto dweight = on.buffer(std::vector<float>(w.size(), 0.5F));
      kernels::RmsNormBackward<T> back{
          gradient.data(), in.data(), width, inverse.data(), weight.data(), rows, 1,
          width,           dx.data(), width, dweight.data(), nullptr,       form};
      on.run(back);
      // The second backward runs in place, for a frozen weight.
      back.dx = gradient.data();
      back.dweight = nullptr;
      on.run(back);
      EXPECT_EQ(in.values().size(), x.size());
      const double element = 2 * kRounding<T> + kSums;
      return {output(y.values(), kSameRoundings<T>), output(inverse.values(), kSums),
              output(dx.values(), element, 1.0), output(dweight.values(), kSums),
              output(gradient.values(), element, 1.0)};
    });
  });
}

TEST_P(CudaKernels, RmsNormIsTheCpus) {
  for_norms(GetParam().only,
            [&](RmsForm form) { expect_rms_norm(rows(), width(), form); });
}

TEST(CudaRmsNorm, OfMoreRowsThanBlocksIsTheCpus) {
  expect_rms_norm(514, 257, RmsForm::WeightAfterCast);
}

/// This test takes most of a minute, so only `make soak` runs it.
TEST(CudaRmsNorm, DISABLED_OfMoreWideRowsThanBlocksIsTheCpus) {
  expect_rms_norm(513, 2065, RmsForm::OnePlusWeight);
}

TEST_P(CudaKernels, RmsNormOfASumIsTheCpus) {
  for_typed_norms(GetParam().only, [&]<typename T>(T, RmsForm form) {
    const auto x = random_values<T>(rows() * width(), 1);
    const auto d = random_values<T>(rows() * width(), 2);
    const auto dy = random_values<T>(rows() * width(), 3);
    const auto ds = random_values<T>(rows() * width(), 4);
    const auto w = random_values<T>(width(), 5);
    expect_same_on_gpu([&](const auto& on) -> Outputs {
      auto in = on.buffer(x), delta = on.buffer(d), weight = on.buffer(w);
      auto sum = on.buffer(std::vector<T>(size())), y = on.buffer(std::vector<T>(size()));
      auto inverse = on.buffer(std::vector<float>(static_cast<size_t>(rows())));
      on.run(kernels::RmsNormForward<T>{in.data(), width(), weight.data(), 1e-5, rows(),
                                        1, width(), y.data(), inverse.data(),
                                        delta.data(), sum.data(), form});
      auto gradient = on.buffer(dy), dsum = on.buffer(ds);
      auto dx = on.buffer(std::vector<T>(size()));
      auto dweight = on.buffer(std::vector<float>(w.size(), 0.5F));
      on.run(kernels::RmsNormBackward<T>{
          gradient.data(), sum.data(), width(), inverse.data(), weight.data(), rows(), 1,
          width(), dx.data(), width(), dweight.data(), dsum.data(), form});
      EXPECT_TRUE(kernels::testing::same_bits(in.values(), x));
      EXPECT_TRUE(kernels::testing::same_bits(dsum.values(), ds));
      const double element = 2 * kRounding<T> + kSums;
      return {output(sum.values(), kSums), output(y.values(), kSameRoundings<T>),
              output(inverse.values(), kSums), output(dx.values(), element, 1.0),
              output(dweight.values(), kSums)};
    });
  });
}

TEST(CudaRmsNorm, OfHeadsInAWiderMatrixIsTheCpus) {
  for_typed_norms({}, [&]<typename T>(T, RmsForm form) {
    // A token has fewer heads than a block has rows at a time, as many heads, or more.
    for (const auto [tokens, heads, dim] :
         {Heads{66, 1, 16}, Heads{23, 3, 20}, Heads{2, 64, 8}, Heads{2, 66, 33}}) {
      SCOPED_TRACE(heads);
      const int64_t rows = tokens * heads;
      const auto dy = random_values<T>(rows * dim, 2);
      const auto w = random_values<T>(dim, 3);
      for (const int64_t gap : {3, 8}) {
        const int64_t stride = heads * dim + gap;
        const auto x = random_values<T>(tokens * stride, 1);
        expect_same_on_gpu([&](const auto& on) -> Outputs {
          auto in = on.buffer(x);
          auto weight = on.buffer(w);
          auto y = on.buffer(std::vector<T>(dy.size()));
          auto inverse = on.buffer(std::vector<float>(static_cast<size_t>(rows)));
          on.run(kernels::RmsNormForward<T>{in.data(), stride, weight.data(), 1e-5,
                                            tokens, heads, dim, y.data(), inverse.data(),
                                            nullptr, nullptr, form});
          auto gradient = on.buffer(dy);
          auto dx = on.buffer(std::vector<T>(static_cast<size_t>(tokens * (stride + 8))));
          auto dweight = on.buffer(std::vector<float>(w.size(), 0.5F));
          on.run(kernels::RmsNormBackward<T>{
              gradient.data(), in.data(), stride, inverse.data(), weight.data(), tokens,
              heads, dim, dx.data(), stride + 8, dweight.data(), nullptr, form});
          const double element = 2 * kRounding<T> + kSums;
          return {output(y.values(), kSameRoundings<T>), output(inverse.values(), kSums),
                  output(dx.values(), element, 1.0), output(dweight.values(), kSums)};
        });
      }
    }
  });
}

TEST(CudaRmsNorm, OfHeadsInAWiderMatrixHasTheBitsOfTheirCopy) {
  for_typed_norms({}, [&]<typename T>(T, RmsForm form) {
    for (const auto [tokens, heads, dim] : {Heads{23, 3, 24}, Heads{15, 5, 33}}) {
      const int64_t rows = tokens * heads, stride = heads * dim + 8;
      const auto matrix = random_values<T>(tokens * stride, 1);
      const auto dy = random_values<T>(rows * dim, 2), w = random_values<T>(dim, 3);
      std::vector<T> copy;
      for (int64_t i = 0; i < tokens; ++i) {
        const auto from = matrix.begin() + i * stride;
        copy.insert(copy.end(), from, from + heads * dim);
      }
      const auto found = [&](const std::vector<T>& x, int64_t n, int64_t of_token,
                             int64_t step) {
        const OnGpu on{Edge::Begin};  // aligned
        auto in = on.buffer(x), weight = on.buffer(w), gradient = on.buffer(dy);
        auto y = on.buffer(std::vector<T>(dy.size()));
        auto inverse = on.buffer(std::vector<float>(static_cast<size_t>(rows)));
        auto sums = on.buffer(std::vector<float>(w.size(), 0.5F));
        on.run(kernels::RmsNormForward<T>{in.data(), step, weight.data(), 1e-5, n,
                                          of_token, dim, y.data(), inverse.data(),
                                          nullptr, nullptr, form});
        on.run(kernels::RmsNormBackward<T>{
            gradient.data(), in.data(), step, inverse.data(), weight.data(), n, of_token,
            dim, gradient.data(), of_token * dim, sums.data(), nullptr, form});
        return std::tuple(y.values(), gradient.values(), sums.values());
      };
      const auto [y, dx, dw] = found(matrix, tokens, heads, stride);
      const auto [y_of_copy, dx_of_copy, dw_of_copy] = found(copy, rows, 1, dim);
      using kernels::testing::same_bits;
      EXPECT_TRUE(same_bits(y, y_of_copy));
      EXPECT_TRUE(same_bits(dx, dx_of_copy));
      EXPECT_TRUE(same_bits(dw, dw_of_copy));
    }
  });
}

/// Compares a gated product of halves of one matrix, as a merged product gives them, or
/// of separate matrices, with a weight for each row or without.
template <typename T>
void expect_gated_product(Activation activation, int64_t rows, int64_t width,
                          int64_t stride, bool weighed) {
  const auto in = random_values<T>(2 * rows * width, 1, 3.0F);
  const auto dy = random_values<T>(rows * width, 2);
  const auto of_rows = random_values(rows, 3);
  expect_same_on_gpu([&](const auto& on) -> Outputs {
    auto gate_up = on.buffer(in);
    const T* gate = gate_up.data();
    const T* up = gate + (stride == width ? rows * width : width);
    auto y = on.buffer(std::vector<T>(dy.size()));
    auto weights = on.buffer(of_rows);
    auto dweights = on.buffer(std::vector<float>(of_rows.size()));
    const float* factor = weighed ? weights.data() : nullptr;
    on.run(kernels::GatedProductForward<T>{activation, gate, up, stride, rows, width,
                                           y.data(), factor});
    auto gradient = on.buffer(dy);
    auto d = on.buffer(std::vector<T>(in.size()));
    T* dgate = d.data();
    T* dup = dgate + (up - gate);
    on.run(kernels::GatedProductBackward<T>{activation, gradient.data(), gate, up, stride,
                                            rows, width, dgate, dup, stride, factor,
                                            weighed ? dweights.data() : nullptr});
    const double element = kRounding<T> + kSums;
    // A term of a weight's gradient is the product of dy, up and the activated gate.
    // Their sizes are 1, 3 and about 2, since half of the gates of size 3 are near zero
    // behind the activation.
    const double term = 1.0 * 3.0 * 2.0;
    return {
        output(y.values(), element), output(d.values(), element),
        output(dweights.values(), kSums, term * std::sqrt(static_cast<double>(width)))};
  });
}

TEST_P(CudaKernels, GatedProductIsTheCpus) {
  for_types([&]<typename T>(T) {
    for (const Activation activation : kActivations) {
      SCOPED_TRACE(static_cast<int>(activation));
      for (const int64_t stride : {2 * width(), width()}) {
        expect_gated_product<T>(activation, rows(), width(), stride, false);
      }
      expect_gated_product<T>(activation, rows(), width(), 2 * width(), true);
    }
  });
}

TEST_P(CudaKernels, RowsAreGatheredAndSummedAsOnTheCpu) {
  for_types([&]<typename T>(T) {
    for (const int64_t each : {1, 3}) {
      // With each == 3 rows are further apart than they are long.
      const int64_t stride = width() + (each == 3 ? 8 : 0);
      const auto x = random_values<T>(rows() * stride, 1);
      std::vector<int64_t> some;
      for (int64_t i = 0; i < 2 * each; ++i) some.push_back((7 * i + 1) % rows());
      expect_same_on_gpu([&](const auto& on) -> Outputs {
        auto in = on.buffer(x);
        auto chosen = on.buffer(some);
        auto gathered =
            on.buffer(std::vector<T>(some.size() * static_cast<size_t>(stride)));
        on.run(kernels::GatherRows<T>{in.data(), stride, chosen.data(), 2 * each, width(),
                                      gathered.data(), stride});
        auto sums = on.buffer(std::vector<T>(static_cast<size_t>(2 * width())));
        on.run(kernels::SumRows<T>{in.data(), stride, chosen.data(), 2, each, width(),
                                   sums.data()});
        return {output(gathered.values(), 0.0), output(sums.values(), 0.0)};
      });
    }
  });
}

TEST_P(CudaKernels, GeluIsItsDefinition) {
  report_crossings();
  for_types([&]<typename T>(T) {
    auto x = random_values<T>(rows() * width(), 1, 3.0F);
    const auto dy = random_values<T>(rows() * width(), 2);
    for (const bool tanh : {false, true}) {
      std::vector<double> y, dx;
      for (size_t i = 0; i < x.size(); ++i) {
        const auto [value, slope] =
            activation_and_slope(tanh ? Activation::GeluTanh : Activation::GeluExact,
                                 kernels::testing::widen(x[i]));
        y.push_back(value);
        dx.push_back(slope * kernels::testing::widen(dy[i]));
      }
      const double element = kRounding<T> + kSums;
      for (const Edge edge : kEdges) {
        SCOPED_TRACE(::testing::Message() << tanh << " " << static_cast<int>(edge));
        Guarded<T> in(x, edge), out(std::vector<T>(size()), edge), gradient(dy, edge),
            din(std::vector<T>(size()), edge);
        using kernels::GeluForward, kernels::GeluBackward;
        const auto count = static_cast<int64_t>(size());
        kernels::cuda::run(GeluForward<T>{in.data(), count, tanh, out.data()}, nullptr);
        kernels::cuda::run(
            GeluBackward<T>{gradient.data(), in.data(), count, tanh, din.data()},
            nullptr);
        expect_close(output(out.values(), element), {y, element, 0.0});
        expect_close(output(din.values(), element), {dx, element, 0.0});
        // This run is in place.
        const auto written = din.values();
        kernels::cuda::run(
            GeluBackward<T>{gradient.data(), in.data(), count, tanh, gradient.data()},
            nullptr);
        EXPECT_EQ(std::memcmp(gradient.data(), written.data(), size() * sizeof(T)), 0);
        kernels::cuda::run(GeluForward<T>{in.data(), count, tanh, in.data()}, nullptr);
        EXPECT_EQ(std::memcmp(in.data(), out.data(), size() * sizeof(T)), 0);
      }
    }
  });
}

TEST(CudaGelu, OfValuesFarOutIsZeroOrTheValue) {
  report_crossings();
  for (const bool tanh : {false, true}) {
    Guarded<float> x({-1e9F, -40.0F, 0.0F, 40.0F, 1e9F}, Edge::Begin);
    Guarded<float> y(std::vector<float>(5, 7.0F), Edge::Begin);
    Guarded<float> dx(std::vector<float>(5, 1.0F), Edge::Begin);
    kernels::cuda::run(kernels::GeluForward<float>{x.data(), 5, tanh, y.data()}, nullptr);
    kernels::cuda::run(
        kernels::GeluBackward<float>{dx.data(), x.data(), 5, tanh, dx.data()}, nullptr);
    EXPECT_EQ(y.values(), (std::vector<float>{0.0F, 0.0F, 0.0F, 40.0F, 1e9F}));
    EXPECT_EQ(dx.values(), (std::vector<float>{0.0F, 0.0F, 0.5F, 1.0F, 1.0F}));
  }
}

struct Parts {
  int64_t sequences, queries, heads, head_dim;
};

/// Compares a merge into queries [1, queries] of tensors that have two more queries.
template <typename T>
void expect_merged(const Parts& s, Edge edge) {
  const int64_t all = s.queries + 2, row = s.heads * s.head_dim;
  const auto part = random_values<T>(s.sequences * s.queries * row, 1);
  auto part_lse = random_values<float>(s.sequences * s.heads * s.queries, 2, 3.0F);
  const auto out = random_values<float>(s.sequences * all * row, 3);
  auto lse = random_values<float>(s.sequences * s.heads * all, 4, 3.0F);
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  lse[1] = kNone;                          // this query has seen no key
  if (s.queries > 2) part_lse[2] = kNone;  // this query sees no key of the part
  if (s.queries > 1) lse[2] = part_lse[1] = kNone;
  std::vector<double> merged(out.begin(), out.end()), now(lse.begin(), lse.end());
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t q = 0; q < s.queries; ++q) {
      for (int64_t h = 0; h < s.heads; ++h) {
        const auto of = static_cast<size_t>((b * s.heads + h) * all + q + 1);
        const double before = std::exp(static_cast<double>(lse[of]));
        const double fresh = std::exp(static_cast<double>(
            part_lse[static_cast<size_t>((b * s.heads + h) * s.queries + q)]));
        const double sum = before + fresh;
        now[of] = std::log(sum);
        for (int64_t d = 0; d < s.head_dim; ++d) {
          const auto to =
              static_cast<size_t>((b * all + q + 1) * row + h * s.head_dim + d);
          const auto from =
              static_cast<size_t>((b * s.queries + q) * row + h * s.head_dim + d);
          merged[to] =
              sum == 0.0
                  ? 0.0
                  : (merged[to] * before + kernels::testing::widen(part[from]) * fresh) /
                        sum;
        }
      }
    }
  }
  Guarded<T> fresh(part, edge);
  Guarded<float> of_fresh(part_lse, edge), sum(out, edge), of_sum(lse, edge);
  kernels::cuda::run(
      kernels::MergeAttention<T>{fresh.data(), of_fresh.data(), s.sequences, s.queries,
                                 s.heads, s.head_dim, sum.data() + row, all * row,
                                 of_sum.data() + 1, s.heads * all, all},
      nullptr);
  expect_close(output(sum.values(), 4 * kSums, 1.0), {merged, 4 * kSums, 1.0});
  const auto found = of_sum.values();
  for (size_t i = 0; i < now.size(); ++i) {
    if (std::isinf(now[i])) {
      EXPECT_EQ(found[i], kNone);
    } else {
      EXPECT_NEAR(found[i], now[i], 1e-5);
    }
  }
}

TEST(CudaAttention, APartOfTheKeysIsTakenInByItsLogSumExp) {
  report_crossings();
  for (const Parts& shape :
       {Parts{1, 1, 1, 8}, Parts{2, 3, 2, 16}, Parts{1, 5, 3, 24}, Parts{2, 4, 2, 128},
        Parts{1, 2, 2, 256}, Parts{1, 3, 1, 7}, Parts{1, 1, 2, 300}}) {
    for_types([&]<typename T>(T) {
      for (const Edge edge : kEdges) {
        SCOPED_TRACE(::testing::Message()
                     << shape.head_dim << " " << static_cast<int>(edge));
        expect_merged<T>(shape, edge);
      }
    });
  }
}

TEST_P(CudaKernels, CrossEntropyIsTheCpus) {
  for_types([&]<typename T>(T) {
    const auto logits = random_values<T>(rows() * width(), 1, 3.0F);
    std::vector<int64_t> targets;
    for (int64_t r = 0; r < rows(); ++r) {
      targets.push_back(r % 5 == 1 ? -100 : (r * 7 + width() - 1) % width());
    }
    for (const bool want : {false, true}) {
      expect_same_on_gpu([&](const auto& on) -> Outputs {
        auto held = on.buffer(logits);
        auto of = on.buffer(targets);
        auto loss = on.buffer(std::vector<float>(targets.size(), 7.0F));
        auto squared = on.buffer(std::vector<float>(targets.size(), 7.0F));
        on.run(kernels::CrossEntropy<T>{held.data(), of.data(), rows(), width(), 0.37,
                                        0.01, want, loss.data(), squared.data()});
        return {output(loss.values(), 4 * kSums, 1.0),
                output(squared.values(), 4 * kSums),
                output(held.values(), kRounding<T> + 4 * kSums)};
      });
    }
  });
}

TEST_P(CudaKernels, CrossEntropyOfAPartOfTheVocabularyIsTheCpus) {
  for_types([&]<typename T>(T) {
    const auto logits = random_values<T>(rows() * width(), 1, 3.0F);
    const auto lse = random_values<float>(rows(), 2);
    std::vector<int64_t> targets;
    std::vector<float> scales;
    // The target lies before, in or after this part of the vocabulary, or a row has none.
    for (int64_t r = 0; r < rows(); ++r) {
      targets.push_back(r % 4 == 0   ? (r * 7 + width() - 1) % width()
                        : r % 4 == 1 ? -3
                                     : width());
      scales.push_back(r % 4 == 3 ? 0.0F : 0.37F);
    }
    expect_same_on_gpu([&](const auto& on) -> Outputs {
      auto held = on.buffer(logits);
      auto of = on.buffer(targets);
      auto maximum = on.buffer(std::vector<float>(targets.size()));
      auto sum = on.buffer(std::vector<float>(targets.size()));
      auto picked = on.buffer(std::vector<float>(targets.size(), 7.0F));
      on.run(kernels::CrossEntropyStatistics<T>{held.data(), of.data(), rows(), width(),
                                                maximum.data(), sum.data(),
                                                picked.data()});
      auto total = on.buffer(lse);
      auto scale = on.buffer(scales);
      on.run(kernels::CrossEntropyGradient<T>{held.data(), of.data(), rows(), width(),
                                              total.data(), scale.data(), 0.01});
      return {output(maximum.values(), 0.0), output(sum.values(), 4 * kSums),
              output(picked.values(), 0.0),
              output(held.values(), kRounding<T> + 4 * kSums, 0.37)};
    });
  });
}

TEST(CudaCrossEntropy, KeepsNaNAndLeavesOutMinusInfinity) {
  report_crossings();
  std::vector<float> logits(2 * 600, -HUGE_VALF);
  logits[7] = 1.0F;
  logits[599] = 1.0F;
  logits[600 + 44] = std::nanf("");
  const std::vector<int64_t> targets{7, 1};
  Guarded<float> held(logits, Edge::Begin);
  Guarded<int64_t> of(targets, Edge::Begin);
  Guarded<float> loss({0.0F, 0.0F}, Edge::End);
  Guarded<float> squared({0.0F, 0.0F}, Edge::End);
  kernels::cuda::run(kernels::CrossEntropy<float>{held.data(), of.data(), 2, 600, 1.0,
                                                  0.0, true, loss.data(), squared.data()},
                     nullptr);
  EXPECT_NEAR(loss.values()[0], std::log(2.0F), 1e-6F);
  EXPECT_TRUE(std::isnan(loss.values()[1]));
  EXPECT_NEAR(held.values()[7], -0.5F, 1e-6F);
  EXPECT_EQ(held.values()[8], 0.0F);
  EXPECT_TRUE(std::isnan(held.values()[600]));
}

TEST(CudaEmbedding, AddsTheGradientsOfARowInTheOrderOfItsTokens) {
  report_crossings();
  // The tokens have rows 0, 4, 5, and rows outside of this part of the table.
  const std::vector<int64_t> rows{-3, -3, 0, 4, 4, 4, 4, 4, 5, 6, 9};
  const std::vector<int64_t> order{5, 9, 8, 0, 2, 3, 7, 10, 1, 4, 6};
  const auto tokens = static_cast<int64_t>(rows.size());
  for_types([&]<typename T>(T) {
    for (const int64_t width : {1, 3, 33, 256, 1000, 4104}) {
      const auto dy = random_values<T>(tokens * width, 1);
      const auto before = random_values<float>(6 * width, 2);
      auto expected = before;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] < 0 || rows[i] >= 6) continue;
        for (int64_t f = 0; f < width; ++f) {
          expected[static_cast<size_t>(rows[i] * width + f)] +=
              kernels::testing::widen(dy[static_cast<size_t>(order[i] * width + f)]);
        }
      }
      for (const Edge edge : kEdges) {
        Guarded<T> of(dy, edge);
        Guarded<int64_t> sorted(rows, edge);
        Guarded<int64_t> from(order, edge);
        Guarded<float> gradient(before, edge);
        kernels::cuda::run(
            kernels::EmbeddingGradient<T>{of.data(), sorted.data(), from.data(), tokens,
                                          width, 6, gradient.data()},
            nullptr);
        EXPECT_EQ(gradient.values(), expected) << width;
      }
    }
  });
}

TEST(CudaRope, IsTheCpus) {
  for_types([&]<typename T>(T) {
    for (const int64_t dim : {2, 6, 20, 64, 80, 128}) {
      SCOPED_TRACE(dim);
      constexpr int64_t kTokens = 7;
      constexpr int64_t kHeads = 3;
      for (const int64_t gap : {0, 3, 8}) {  // inside a wider matrix
        const int64_t stride = kHeads * dim + gap;
        const auto x = random_values<T>(kTokens * stride, 1);
        std::vector<float> c, s;
        for (int64_t i = 0; i < 9 * dim / 2; ++i) {
          c.push_back(std::cos(0.3F * static_cast<float>(i)));
          s.push_back(std::sin(0.3F * static_cast<float>(i)));
        }
        const std::vector<int32_t> ids{0, 8, 2, 2, 1, 5, 3};
        expect_same_on_gpu([&](const auto& on) -> Outputs {
          auto in = on.buffer(x);
          auto cos = on.buffer(c);
          auto sin = on.buffer(s);
          auto at = on.buffer(ids);
          auto y = on.buffer(std::vector<T>(static_cast<size_t>(kTokens * kHeads * dim)));
          kernels::Rope<T> rope{in.data(), stride,       dim,        kTokens,   kHeads,
                                dim,       cos.data(),   sin.data(), at.data(), false,
                                y.data(),  kHeads * dim, dim};
          on.run(rope);
          // The second run rotates back, in place.
          rope.inverse = true;
          rope.y = in.data();
          rope.y_token_stride = stride;
          on.run(rope);
          const double element = kRounding<T> + kSums;
          return {output(y.values(), element), output(in.values(), element)};
        });
      }
    }
  });
}

}  // namespace
}  // namespace longhaul::cuda_host
