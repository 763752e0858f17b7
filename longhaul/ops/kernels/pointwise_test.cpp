#include <omp.h>

#include "longhaul/base/random.h"
#include "tests/support/kernel_cases.h"

namespace longhaul::kernels::testing {
namespace {

struct Size {
  int64_t rows, features;
};
constexpr Size kSizes[] = {{1, 8}, {3, 37}, {70, 100}, {33, 768}};

TEST(Rope, RotatesHalvesAndBack) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    constexpr int64_t kTokens = 5;
    constexpr int64_t kHeads = 3;
    constexpr int64_t D = 20;
    constexpr int64_t kStride = kHeads * D + 7;  // inside a wider matrix
    const auto x = random_values<T>(kTokens * kStride, 1);
    std::vector<float> cos(6 * D / 2), sin(6 * D / 2);
    for (size_t i = 0; i < cos.size(); ++i) {
      cos[i] = std::cos(static_cast<float>(i));
      sin[i] = std::sin(static_cast<float>(i));
    }
    const std::vector<int32_t> ids{0, 5, 2, 2, 1};
    std::vector<T> y(kTokens * kHeads * D);
    run(Rope<T>{x.data(), kStride, D, kTokens, kHeads, D, cos.data(), sin.data(),
                ids.data(), false, y.data(), kHeads * D, D},
        isa);
    Doubles want(y.size()), original(y.size());
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t d = 0; d < D / 2; ++d) {
          const int64_t of_table = ids[static_cast<size_t>(i)] * (D / 2) + d;
          const auto angle = static_cast<double>(of_table);
          const double a = value(x, i * kStride + h * D + d);
          const double b = value(x, i * kStride + h * D + d + D / 2);
          const int64_t to = (i * kHeads + h) * D + d;
          element(want, to) = a * std::cos(angle) - b * std::sin(angle);
          element(want, to + D / 2) = b * std::cos(angle) + a * std::sin(angle);
          element(original, to) = a;
          element(original, to + D / 2) = b;
        }
      }
    }
    EXPECT_LT(distance(y, want), kRounding<T> + kSums);
    run(Rope<T>{y.data(), kHeads * D, D, kTokens, kHeads, D, cos.data(), sin.data(),
                ids.data(), true, y.data(), kHeads * D, D},
        isa);
    EXPECT_LT(distance(y, original), 2 * kRounding<T> + kSums);
  });
}

TEST(GatedProduct, EqualsTheReferenceOnHalvesOfOneMatrix) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const Activation activation : kActivations) {
      for (const auto [rows, F] : kSizes) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(activation) << " " << F);
        const auto fused = random_values<T>(rows * 2 * F, 1, 4.0F);
        const auto dy = random_values<T>(rows * F, 2);
        std::vector<T> y(dy.size()), grad(fused.size());
        run(GatedProductForward<T>{activation, fused.data(), fused.data() + F, 2 * F,
                                   rows, F, y.data()},
            isa);
        run(GatedProductBackward<T>{activation, dy.data(), fused.data(), fused.data() + F,
                                    2 * F, rows, F, grad.data(), grad.data() + F, 2 * F},
            isa);
        Doubles want(y.size()), want_grad(grad.size());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < F; ++i) {
            const auto [act, slope] =
                activation_and_slope(activation, value(fused, r * 2 * F + i));
            const double u = value(fused, r * 2 * F + F + i);
            const double d = value(dy, r * F + i);
            element(want, r * F + i) = act * u;
            element(want_grad, r * 2 * F + i) = d * u * slope;
            element(want_grad, r * 2 * F + F + i) = d * act;
          }
        }
        EXPECT_LT(distance(y, want), kRounding<T> + kSums);
        EXPECT_LT(distance(grad, want_grad), kRounding<T> + kSums);
      }
    }
  });
}

TEST(GatedProduct, OfWeighedRowsEqualsTheReference) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const Activation activation : kActivations) {
      for (const auto [rows, F] : kSizes) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(activation) << " " << F);
        const auto gate = random_values<T>(rows * F, 1, 4.0F);
        const auto up = random_values<T>(rows * F, 2), dy = random_values<T>(rows * F, 3);
        const auto weights = random_values(rows, 4);
        std::vector<T> y(dy.size()), dgate(dy.size()), dup(dy.size());
        std::vector<float> dweights(weights.size());
        run(GatedProductForward<T>{activation, gate.data(), up.data(), F, rows, F,
                                   y.data(), weights.data()},
            isa);
        run(GatedProductBackward<T>{activation, dy.data(), gate.data(), up.data(), F,
                                    rows, F, dgate.data(), dup.data(), F, weights.data(),
                                    dweights.data()},
            isa);
        Doubles want(y.size()), want_gate(y.size()), want_up(y.size());
        Doubles want_weights(weights.size());
        for (int64_t i = 0; i < rows * F; ++i) {
          const auto [act, slope] = activation_and_slope(activation, value(gate, i));
          const double u = value(up, i), d = value(dy, i), w = value(weights, i / F);
          element(want, i) = w * act * u;
          element(want_gate, i) = w * d * u * slope;
          element(want_up, i) = w * d * act;
          element(want_weights, i / F) += d * act * u;
        }
        EXPECT_LT(distance(y, want), kRounding<T> + kSums);
        EXPECT_LT(distance(dgate, want_gate), kRounding<T> + kSums);
        EXPECT_LT(distance(dup, want_up), kRounding<T> + kSums);
        EXPECT_LT(distance(dweights, want_weights), kSums);
      }
    }
  });
}

TEST(GatedProduct, IsWithinAMillionthOfEveryGate) {
  for (const system::Isa isa : all_isas()) {
    for (const Activation activation : kActivations) {
      SCOPED_TRACE(::testing::Message()
                   << system::isa_name(isa) << " " << static_cast<int>(activation));
      std::vector<float> gate;
      for (int i = -1200; i <= 1200; ++i) gate.push_back(static_cast<float>(i) / 100.0F);
      const auto n = static_cast<int64_t>(gate.size());
      const std::vector<float> ones(gate.size(), 1.0F);
      std::vector<float> y(gate.size()), dgate(gate.size()), dup(gate.size());
      run(GatedProductForward<float>{activation, gate.data(), ones.data(), n, 1, n,
                                     y.data()},
          isa);
      run(GatedProductBackward<float>{activation, ones.data(), gate.data(), ones.data(),
                                      n, 1, n, dgate.data(), dup.data(), n},
          isa);
      for (int64_t i = 0; i < n; ++i) {
        const auto [act, slope] = activation_and_slope(activation, value(gate, i));
        ASSERT_NEAR(value(y, i), act, 1e-6 * std::max(1.0, std::abs(act))) << i;
        ASSERT_NEAR(value(dgate, i), slope, 1e-6) << i;
        ASSERT_EQ(value(dup, i), value(y, i)) << i;
      }
    }
  }
}

TEST(GatedProduct, KeepsNaNAndSurvivesLargeGates) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const Activation activation : kActivations) {
      for (const float large : {1e4F, 1e30F}) {
        std::vector<T> gate(9), up(9), y(9), dgate(9), dup(9);
        for (size_t i = 0; i < 9; ++i) narrow(i % 2 == 0 ? large : -large, &gate[i]);
        for (T& u : up) narrow(2.0F, &u);
        narrow(std::nanf(""), &gate[3]);
        run(GatedProductForward<T>{activation, gate.data(), up.data(), 9, 1, 9, y.data()},
            isa);
        run(GatedProductBackward<T>{activation, up.data(), gate.data(), up.data(), 9, 1,
                                    9, dgate.data(), dup.data(), 9},
            isa);
        for (size_t i = 0; i < 9; ++i) {
          if (i == 3) {
            EXPECT_TRUE(std::isnan(widen(y[i])));
            EXPECT_TRUE(std::isnan(widen(dgate[i])));
            EXPECT_TRUE(std::isnan(widen(dup[i])));
            continue;
          }
          // AVX2 bounds exp() below 2^128, so that the activation of -1e4 is nearly 0,
          // but not 0.
          const bool whole = i % 2 == 0;
          const float nothing = large * 1e-34F;
          EXPECT_NEAR(widen(y[i]), whole ? 2 * widen(gate[i]) : 0.0F, nothing) << i;
          EXPECT_NEAR(widen(dup[i]), whole ? 2 * widen(gate[i]) : 0.0F, nothing) << i;
          EXPECT_NEAR(widen(dgate[i]), whole ? 4.0F : 0.0F, 1e-4F) << i;
        }
      }
    }
  });
}

/// A chunk of logits [rows, V] with a target for each row, which is -100 for rows without
/// a target.
template <typename T>
struct Chunk {
  int64_t rows, V;
  std::vector<T> logits = random_values<T>(rows * V, 1, 3.0F);
  std::vector<int64_t> targets = {};

  Chunk(int64_t r, int64_t v) : rows(r), V(v) {
    for (int64_t i = 0; i < rows; ++i) targets.push_back(i % 5 == 4 ? -100 : (i * 7) % V);
  }
  double lse(int64_t r) const {
    double sum = 0.0;
    for (int64_t i = 0; i < V; ++i) sum += std::exp(value(logits, r * V + i));
    return std::log(sum);
  }
};

TEST(Dropout, KeepsTheElementsThatPhiloxDrawsWithTheSameBitsEverywhere) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const auto [rows, features] : kSizes) {
      const auto n = static_cast<size_t>(rows);
      std::vector<int64_t> sequences(n);
      std::vector<int32_t> index(n);
      for (size_t r = 0; r < n; ++r) {
        sequences[r] = static_cast<int64_t>(r * 0x1234567891ULL % (1ULL << 48));
        index[r] = static_cast<int32_t>(r * 7);
      }
      const Draws draws{0x85a308d3243f6a88, 0x40000000, 4.0F / 3.0F};
      const auto x = random_values<T>(rows * features, 1);
      std::vector<T> y(x.size()), want(x.size());
      constexpr uint32_t kFirstGroup = 5;
      const Dropout<T> kernel{x.data(), sequences.data(), index.data(), rows, features,
                              draws,    y.data(),         kFirstGroup};
      run(kernel, isa);
      for (int64_t i = 0; i < rows * features; ++i) {
        const auto r = static_cast<size_t>(i / features);
        const auto column = 4 * kFirstGroup + static_cast<uint64_t>(i % features);
        const auto sequence = static_cast<uint64_t>(sequences[r]);
        const auto drawn =
            philox(draws.key, column / 4 | static_cast<uint64_t>(index[r]) << 32,
                   (sequence & 0xFFFFFFFF) | sequence >> 32 << 16 << 32);
        const float factor = drawn[column % 4] >= draws.threshold ? draws.scale : 0.0F;
        const auto at = static_cast<size_t>(i);
        narrow(factor == 0.0F ? 0.0F : widen(x[at]) * factor, &want[at]);
      }
      EXPECT_TRUE(same_bits(y, want)) << rows << " x " << features;
      std::vector<T> in_place = x;
      Dropout<T> itself = kernel;
      itself.x = in_place.data();
      itself.y = in_place.data();
      run(itself, isa);
      EXPECT_TRUE(same_bits(in_place, want));
    }
  });
}

TEST(Dropout, ReachesThePublishedVectorOfPhilox) {
  // By Random123's kat_vectors, counter 0 of key 0 draws these words. A threshold at one
  // of the words keeps its element, and a threshold above the word drops it.
  constexpr uint32_t kDrawn[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (const system::Isa isa : all_isas()) {
    const int64_t sequence = 0;
    const int32_t index = 0;
    const float x[4] = {1, 1, 1, 1};
    for (int i = 0; i < 4; ++i) {
      for (const uint32_t above : {0U, 1U}) {
        float y[4];
        run(Dropout<float>{x, &sequence, &index, 1, 4, {0, kDrawn[i] + above, 2.0F}, y},
            isa);
        EXPECT_EQ(y[i], above == 0 ? 2.0F : 0.0F);
      }
    }
  }
}

TEST(CrossEntropy, EqualsTheReference) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const auto [rows, V] : {Size{1, 5}, Size{7, 61}, Size{11, 1000}}) {
      constexpr double kScale = 0.37;
      constexpr double kZ = 0.01;
      Chunk<T> chunk(rows, V);
      std::vector<float> loss(chunk.targets.size()), squared(chunk.targets.size());
      Doubles want(loss.size()), want_squared(loss.size()), grad(chunk.logits.size());
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t target = chunk.targets[static_cast<size_t>(r)];
        if (target < 0) continue;
        const double lse = chunk.lse(r);
        element(want, r) = lse - value(chunk.logits, r * V + target);
        element(want_squared, r) = lse * lse;
        for (int64_t i = 0; i < V; ++i) {
          const double p = std::exp(value(chunk.logits, r * V + i) - lse);
          element(grad, r * V + i) =
              kScale * (p * (1 + 2 * kZ * lse) - (i == target ? 1.0 : 0.0));
        }
      }
      auto logits = chunk.logits;
      run(CrossEntropy<T>{logits.data(), chunk.targets.data(), rows, V, kScale, kZ, false,
                          loss.data(), squared.data()},
          isa);
      EXPECT_TRUE(same_bits(logits, chunk.logits));
      run(CrossEntropy<T>{logits.data(), chunk.targets.data(), rows, V, kScale, kZ, true,
                          loss.data(), squared.data()},
          isa);
      EXPECT_LT(distance(loss, want), kSums);
      EXPECT_LT(distance(squared, want_squared), kSums);
      EXPECT_LT(distance(logits, grad), kRounding<T> + kSums);
    }
  });
}

TEST(CrossEntropy, CombinesFromPartsOfTheVocabulary) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    constexpr int64_t kRows = 6;
    constexpr int64_t V = 90;
    constexpr int64_t kCut = 37;
    const Chunk<T> whole(kRows, V);
    std::vector<float> loss(kRows), squared(kRows), lse(kRows, 0.0F), scale(kRows, 0.5F);
    auto want = whole.logits;
    run(CrossEntropy<T>{want.data(), whole.targets.data(), kRows, V, 0.5, 0.02, true,
                        loss.data(), squared.data()},
        isa);
    std::vector<float> total(kRows, 0.0F), picked(kRows, 0.0F);
    Doubles joined(want.size());
    std::vector<std::vector<T>> parts;
    std::vector<std::vector<int64_t>> targets;
    for (const auto& [first, n] :
         {std::pair<int64_t, int64_t>{0, kCut}, {kCut, V - kCut}}) {
      std::vector<T> part;
      std::vector<int64_t> local;
      for (int64_t r = 0; r < kRows; ++r) {
        const auto begin = whole.logits.begin() + r * V + first;
        part.insert(part.end(), begin, begin + n);
        local.push_back(whole.targets[static_cast<size_t>(r)] - first);
      }
      std::vector<float> maximum(kRows), sum(kRows), here(kRows);
      run(CrossEntropyStatistics<T>{part.data(), local.data(), kRows, n, maximum.data(),
                                    sum.data(), here.data()},
          isa);
      for (size_t r = 0; r < kRows; ++r) {
        total[r] += sum[r] * std::exp(maximum[r]);
        picked[r] += here[r];
        if (whole.targets[r] < 0) scale[r] = 0.0F;
      }
      parts.push_back(part);
      targets.push_back(local);
    }
    Doubles want_loss(kRows);
    std::vector<float> got_loss(kRows, 0.0F);
    for (size_t r = 0; r < kRows; ++r) {
      lse[r] = std::log(total[r]);
      want_loss[r] = static_cast<double>(loss[r]);
      if (scale[r] != 0.0F) got_loss[r] = lse[r] - picked[r];
    }
    EXPECT_LT(distance(got_loss, want_loss), kSums);
    for (size_t p = 0; p < 2; ++p) {
      const int64_t first = p == 0 ? 0 : kCut;
      const int64_t n = p == 0 ? kCut : V - kCut;
      run(CrossEntropyGradient<T>{parts[p].data(), targets[p].data(), kRows, n,
                                  lse.data(), scale.data(), 0.02},
          isa);
      Doubles slice;
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t i = 0; i < n; ++i) slice.push_back(value(want, r * V + first + i));
      }
      EXPECT_LT(distance(parts[p], slice), kRounding<T> + kSums);
    }
  });
}

TEST(Buffers, ConvertTheSameBitsEverywhere) {
  // The cases are ties, overflow to infinity, denormals, infinities, and NaN with only
  // low bits.
  const std::vector<uint32_t> cases{0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00000001,
                                    0x807FFFFF, 0x7F800000, 0xFF800000, 0x7F800001,
                                    0xFFC00000, 0x80000000, 0x3F807FFF, 0x3F808001};
  const std::vector<uint16_t> want{0x3F80, 0x3F82, 0x7F80, 0x0000, 0x8080, 0x7F80,
                                   0xFF80, 0x7FC0, 0xFFC0, 0x8000, 0x3F80, 0x3F81};
  for (system::Isa isa : all_isas()) {
    SCOPED_TRACE(system::isa_name(isa));
    for (int64_t count : {12, 3, 24}) {
      std::vector<float> x(static_cast<size_t>(count));
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = __builtin_bit_cast(float, cases[i % cases.size()]);
      }
      std::vector<Bf16> y(x.size());
      convert(x.data(), y.data(), count, isa);
      std::vector<float> back(x.size());
      convert(y.data(), back.data(), count, isa);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(y[i].bits, want[i % want.size()]) << i;
        EXPECT_EQ(__builtin_bit_cast(uint32_t, back[i]), uint32_t{y[i].bits} << 16) << i;
      }
    }
  }
}

TEST(WeightGradient, AddsTheExactProductOnOddSizes) {
  if (system::best_isa() < system::Isa::Avx512Bf16) GTEST_SKIP() << "needs AVX512_BF16";
  struct Case {
    int64_t T, N, K;
  };
  for (const auto [T, N, K] : {Case{1, 1, 1}, Case{7, 13, 70}, Case{1500, 101, 130},
                               Case{64, 200, 64}, Case{33, 6, 48}}) {
    SCOPED_TRACE(::testing::Message() << T << " " << N << " " << K);
    const int64_t dy_stride = N + 3;
    const int64_t x_stride = K + 5;
    const auto dy = random_values<Bf16>(T * dy_stride, 1);
    const auto x = random_values<Bf16>(T * x_stride, 2);
    const auto before = random_values(N * K, 3);
    Doubles want(before.begin(), before.end());
    for (int64_t i = 0; i < T; ++i) {
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t k = 0; k < K; ++k) {
          element(want, n * K + k) +=
              value(dy, i * dy_stride + n) * value(x, i * x_stride + k);
        }
      }
    }
    const int threads_before = omp_get_max_threads();
    std::vector<float> first;
    for (int threads : {1, 2, 3}) {
      omp_set_num_threads(threads);
      auto grad = before;
      accumulate_weight_gradient(dy.data(), dy_stride, x.data(), x_stride, T, N, K,
                                 grad.data());
      EXPECT_LT(distance(grad, want), kSums);
      if (first.empty()) first = grad;
      EXPECT_TRUE(same_bits(first, grad)) << threads;
    }
    omp_set_num_threads(threads_before);
  }
}

TEST(Memory, ThatIsMissingIsTheReasonFoundByTerminateWithinAParallelRegion) {
  EXPECT_THROW(fail_of_memory(), std::bad_alloc);
  const auto end = [] {
    std::set_terminate([] {
      try {
        std::rethrow_exception(std::current_exception());
      } catch (const std::bad_alloc&) {
        std::_Exit(75);
      }
    });
#pragma omp parallel num_threads(1)
    fail_of_memory();
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(75), "");
}

TEST(Dispatch, RefusesASetThatTheCpuLacks) {
  if (system::best_isa() == system::Isa::Amx) GTEST_SKIP() << "this CPU has them all";
  const float x = 1.0F;
  Bf16 y;
  EXPECT_THROW(convert(&x, &y, 1, system::Isa::Amx), std::runtime_error);
}

}  // namespace
}  // namespace longhaul::kernels::testing
