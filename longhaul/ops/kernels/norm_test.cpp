// These tests compare each form of the RMS norm with its definition in double.
#include <omp.h>

#include <array>
#include <string>

#include "tests/support/kernel_cases.h"

namespace longhaul::kernels::testing {
namespace {

struct NormSize {
  int64_t rows, features;
};
constexpr NormSize kNormSizes[] = {{1, 8}, {4, 3}, {3, 37}, {70, 100}, {33, 768}};

class RmsNorm : public ::testing::TestWithParam<RmsForm> {
 protected:
  static RmsForm form() { return GetParam(); }
  /// Returns the factor of a normed element.
  template <typename T>
  static double factor(const std::vector<T>& weight, int64_t i) {
    return value(weight, i) + (form() == RmsForm::OnePlusWeight ? 1.0 : 0.0);
  }
};
std::string name_of_form(const ::testing::TestParamInfo<RmsForm>& info) {
  const std::array names = {"AfterCast", "BeforeCast", "OnePlus"};
  return names[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Forms, RmsNorm,
                         ::testing::Values(RmsForm::WeightAfterCast,
                                           RmsForm::WeightBeforeCast,
                                           RmsForm::OnePlusWeight),
                         name_of_form);

TEST_P(RmsNorm, EqualsTheReference) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const auto [rows, F] : kNormSizes) {
      const auto x = random_values<T>(rows * F, 1);
      const auto weight = random_values<T>(F, 3);
      std::vector<T> y(x.size());
      std::vector<float> inverse(static_cast<size_t>(rows));
      run(RmsNormForward<T>{x.data(), F, weight.data(), 1e-5, rows, 1, F, y.data(),
                            inverse.data(), nullptr, nullptr, form()},
          isa);
      Doubles want_y(x.size()), want_inverse(inverse.size());
      for (int64_t r = 0; r < rows; ++r) {
        double squares = 0.0;
        for (int64_t i = r * F; i < (r + 1) * F; ++i) {
          squares += value(x, i) * value(x, i);
        }
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(F) + 1e-5);
        element(want_inverse, r) = scale;
        for (int64_t i = r * F; i < (r + 1) * F; ++i) {
          element(want_y, i) = factor(weight, i % F) * value(x, i) * scale;
        }
      }
      EXPECT_LT(distance(inverse, want_inverse), kSums);
      EXPECT_LT(distance(y, want_y), 2 * kRounding<T> + kSums);  // rounded twice
    }
  });
}

TEST_P(RmsNorm, BackwardEqualsTheReferenceAndAddsToTheWeightsGradient) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const auto [rows, F] : kNormSizes) {
      const auto x = random_values<T>(rows * F, 1);
      const auto dy = random_values<T>(rows * F, 2);
      const auto weight = random_values<T>(F, 4);
      std::vector<float> inverse(static_cast<size_t>(rows));
      std::vector<T> y(x.size()), dx(x.size());
      run(RmsNormForward<T>{x.data(), F, weight.data(), 1e-5, rows, 1, F, y.data(),
                            inverse.data(), nullptr, nullptr, form()},
          isa);
      std::vector<float> dweight(static_cast<size_t>(F), 0.5F);
      run(RmsNormBackward<T>{dy.data(), x.data(), F, inverse.data(), weight.data(), rows,
                             1, F, dx.data(), F, dweight.data(), nullptr, form()},
          isa);
      Doubles want_dx(x.size()), want_dweight(dweight.size(), 0.5);
      for (int64_t r = 0; r < rows; ++r) {
        const double scale = value(inverse, r);
        double dot = 0.0;
        for (int64_t i = r * F; i < (r + 1) * F; ++i) {
          const double normal = value(x, i) * scale;
          dot += value(dy, i) * factor(weight, i % F) * normal;
          element(want_dweight, i % F) += value(dy, i) * normal;
        }
        dot /= static_cast<double>(F);
        for (int64_t i = r * F; i < (r + 1) * F; ++i) {
          element(want_dx, i) =
              scale * (value(dy, i) * factor(weight, i % F) - value(x, i) * scale * dot);
        }
      }
      EXPECT_LT(distance(dx, want_dx), kRounding<T> + kSums);
      EXPECT_LT(distance(dweight, want_dweight), kSums);
    }
  });
}

TEST_P(RmsNorm, OfASumHasTheBitsOfSumAndNormAndItsGradientIsRoundedOnce) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const auto [rows, F] : kNormSizes) {
      const auto x = random_values<T>(rows * F, 1), delta = random_values<T>(rows * F, 2);
      const auto dy = random_values<T>(rows * F, 3), dsum = random_values<T>(rows * F, 4);
      const auto weight = random_values<T>(F, 5);
      std::vector<T> want_sum(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        narrow(widen(x[i]) + widen(delta[i]), &want_sum[i]);
      }
      std::vector<T> sum(x.size()), y(x.size()), want_y(x.size());
      std::vector<float> inverse(static_cast<size_t>(rows)), want_inverse(inverse.size());
      run(RmsNormForward<T>{x.data(), F, weight.data(), 1e-5, rows, 1, F, y.data(),
                            inverse.data(), delta.data(), sum.data(), form()},
          isa);
      run(RmsNormForward<T>{want_sum.data(), F, weight.data(), 1e-5, rows, 1, F,
                            want_y.data(), want_inverse.data(), nullptr, nullptr, form()},
          isa);
      EXPECT_TRUE(same_bits(sum, want_sum));
      EXPECT_TRUE(same_bits(y, want_y));
      EXPECT_TRUE(same_bits(inverse, want_inverse));

      std::vector<T> dx(x.size());
      std::vector<float> dweight(static_cast<size_t>(F)), want_dweight(dweight.size());
      run(RmsNormBackward<T>{dy.data(), sum.data(), F, inverse.data(), weight.data(),
                             rows, 1, F, dx.data(), F, dweight.data(), dsum.data(),
                             form()},
          isa);
      run(RmsNormBackward<T>{dy.data(), sum.data(), F, inverse.data(), weight.data(),
                             rows, 1, F, y.data(), F, want_dweight.data(), nullptr,
                             form()},
          isa);
      EXPECT_TRUE(same_bits(dweight, want_dweight));
      Doubles want_dx(x.size());
      for (int64_t r = 0; r < rows; ++r) {
        const double scale = value(inverse, r);
        double dot = 0.0;
        for (int64_t i = r * F; i < (r + 1) * F; ++i) {
          dot += value(dy, i) * factor(weight, i % F) * value(sum, i) * scale;
        }
        dot /= static_cast<double>(F);
        for (int64_t i = r * F; i < (r + 1) * F; ++i) {
          element(want_dx, i) =
              value(dsum, i) + scale * (value(dy, i) * factor(weight, i % F) -
                                        value(sum, i) * scale * dot);
        }
      }
      EXPECT_LT(distance(dx, want_dx), kRounding<T> + kSums);
    }
  });
}

TEST_P(RmsNorm, BackwardDependsNeitherOnTheRunNorOnTheThreads) {
  const int before = omp_get_max_threads();
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    constexpr int64_t kRows = 333;
    constexpr int64_t kFeatures = 100;
    const auto x = random_values<T>(kRows * kFeatures, 1);
    const auto dy = random_values<T>(kRows * kFeatures, 2);
    const auto weight = random_values<T>(kFeatures, 3);
    const std::vector<float> inverse(kRows, 0.9F);
    std::vector<float> first;
    for (int threads : {1, 1, 2, 5}) {
      omp_set_num_threads(threads);
      std::vector<float> dweight(kFeatures, 1.0F);
      std::vector<T> dx(x.size());
      run(RmsNormBackward<T>{dy.data(), x.data(), kFeatures, inverse.data(),
                             weight.data(), kRows, 1, kFeatures, dx.data(), kFeatures,
                             dweight.data(), nullptr, form()},
          isa);
      if (first.empty()) first = dweight;
      EXPECT_TRUE(same_bits(first, dweight)) << threads;
    }
  });
  omp_set_num_threads(before);
}

TEST_P(RmsNorm, OfHeadsInAWiderMatrixHasTheBitsOfTheirCopy) {
  struct Heads {
    int64_t tokens, heads, features, stride;
  };
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const auto [tokens, heads, F, stride] :
         {Heads{1, 1, 8, 9}, Heads{3, 2, 37, 80}, Heads{61, 3, 20, 60},
          Heads{33, 5, 128, 1000}}) {
      const auto matrix = random_values<T>(tokens * stride, 1);
      const int64_t rows = tokens * heads, size = rows * F;
      std::vector<T> x;
      for (int64_t i = 0; i < tokens; ++i) {
        x.insert(x.end(), &matrix[static_cast<size_t>(i * stride)],
                 &matrix[static_cast<size_t>(i * stride)] + heads * F);
      }
      const auto dy = random_values<T>(size, 2), weight = random_values<T>(F, 3);
      struct Found {
        std::vector<T> y, dx;
        std::vector<float> inverse, dweight;
      };
      const auto norm = [&](const T* from, int64_t n, int64_t of_token, int64_t step) {
        Found out{std::vector<T>(x.size()),
                  std::vector<T>(static_cast<size_t>(n * step), T{}),
                  std::vector<float>(static_cast<size_t>(rows)),
                  std::vector<float>(static_cast<size_t>(F), 0.5F)};
        run(RmsNormForward<T>{from, step, weight.data(), 1e-5, n, of_token, F,
                              out.y.data(), out.inverse.data(), nullptr, nullptr, form()},
            isa);
        run(RmsNormBackward<T>{dy.data(), from, step, out.inverse.data(), weight.data(),
                               n, of_token, F, out.dx.data(), step, out.dweight.data(),
                               nullptr, form()},
            isa);
        return out;
      };
      const Found apart = norm(x.data(), rows, 1, F);
      const Found wide = norm(matrix.data(), tokens, heads, stride);
      EXPECT_TRUE(same_bits(wide.y, apart.y));
      EXPECT_TRUE(same_bits(wide.inverse, apart.inverse));
      EXPECT_TRUE(same_bits(wide.dweight, apart.dweight));
      std::vector<T> dx(matrix.size(), T{});  // nothing is written beside the heads
      for (int64_t i = 0; i < size; ++i) {
        dx[static_cast<size_t>(i / (heads * F) * stride + i % (heads * F))] =
            apart.dx[static_cast<size_t>(i)];
      }
      EXPECT_TRUE(same_bits(wide.dx, dx));
    }
  });
}

TEST_P(RmsNorm, RoundsOnceUnlessTheWeightComesAfterTheCast) {
  constexpr int64_t kRows = 70, kFeatures = 100;
  const auto x = random_values<Bf16>(kRows * kFeatures, 1);
  const auto weight = random_values<Bf16>(kFeatures, 3);
  const auto widened = [](const std::vector<Bf16>& from) {
    std::vector<float> wide;
    for (const Bf16 each : from) wide.push_back(widen(each));
    return wide;
  };
  const auto wide_x = widened(x), wide_weight = widened(weight);
  for (const system::Isa isa : all_isas()) {
    SCOPED_TRACE(system::isa_name(isa));
    std::vector<Bf16> y(x.size()), want(x.size());
    std::vector<float> exact(x.size()), inverse(static_cast<size_t>(kRows));
    run(RmsNormForward<Bf16>{x.data(), kFeatures, weight.data(), 1e-5, kRows, 1,
                             kFeatures, y.data(), inverse.data(), nullptr, nullptr,
                             form()},
        isa);
    run(RmsNormForward<float>{wide_x.data(), kFeatures, wide_weight.data(), 1e-5, kRows,
                              1, kFeatures, exact.data(), inverse.data(), nullptr,
                              nullptr, form()},
        isa);
    for (size_t i = 0; i < exact.size(); ++i) narrow(exact[i], &want[i]);
    EXPECT_EQ(same_bits(y, want), form() != RmsForm::WeightAfterCast);
  }
}

}  // namespace
}  // namespace longhaul::kernels::testing
