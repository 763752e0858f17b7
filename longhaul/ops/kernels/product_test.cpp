#include <immintrin.h>
#include <omp.h>

#include "tests/support/kernel_cases.h"

// These tests run the kernels of all instruction sets that this CPU has, not only of the
// best one.

namespace longhaul::kernels::testing {
namespace {

struct ProductSizes {
  int64_t M, K, N;
};
// The sizes are single elements, less than a panel, whole panels and blocks, and, for
// each dim, more than the loops take at once.
constexpr ProductSizes kProductSizes[] = {{1, 1, 1},       {5, 3, 7},      {6, 8, 16},
                                          {7, 13, 70},     {97, 257, 17},  {100, 70, 530},
                                          {192, 512, 512}, {2310, 9, 33},  {13, 2100, 20},
                                          {3, 40, 2100},   {70, 4130, 150}};

/// The factors of a product: a and b hold M x K and K x N elements, with rows or columns
/// contiguous and a gap between them.
struct Operands {
  Operands(const ProductSizes& sizes, bool a_by_columns, bool b_by_columns)
      : s(sizes),
        a_data(random_values<Bf16>((s.M + 3) * (s.K + 3), 1)),
        b_data(random_values<Bf16>((s.K + 3) * (s.N + 3), 2)),
        a{a_data.data(), a_by_columns ? 1 : s.K + 3, a_by_columns ? s.M + 3 : 1},
        b{b_data.data(), b_by_columns ? 1 : s.N + 3, b_by_columns ? s.K + 3 : 1},
        exact(product()) {}

  std::vector<double> product() const {
    std::vector<double> out(static_cast<size_t>(s.M * s.N), 0.0);
    for (int64_t m = 0; m < s.M; ++m) {
      for (int64_t k = 0; k < s.K; ++k) {
        const double left = double{widen(a.data[m * a.row + k * a.column])};
        for (int64_t n = 0; n < s.N; ++n) {
          out[static_cast<size_t>(m * s.N + n)] +=
              left * double{widen(b.data[k * b.row + n * b.column])};
        }
      }
    }
    return out;
  }

  ProductSizes s;
  std::vector<Bf16> a_data, b_data;
  MatrixInput a, b;
  std::vector<double> exact;
};

/// Calls body(operands, isa) for all sizes, layouts and instruction sets.
template <typename Body>
void for_operands(Body body) {
  for (const ProductSizes& s : kProductSizes) {
    for (const bool a_by_columns : {false, true}) {
      for (const bool b_by_columns : {false, true}) {
        const Operands operands(s, a_by_columns, b_by_columns);
        for (const system::Isa isa : all_isas()) {
          SCOPED_TRACE(::testing::Message()
                       << system::isa_name(isa) << " " << s.M << " x " << s.K << " x "
                       << s.N << ", by " << a_by_columns << b_by_columns);
          body(operands, isa);
        }
      }
    }
  }
}

TEST(Product, IsTheExactOneRoundedOnceOfAnyOrderInMemory) {
  for_operands([](const Operands& x, system::Isa isa) {
    const ProductSizes& s = x.s;
    const auto bias = random_values<Bf16>(s.N, 3);
    const auto before = random_values<Bf16>(s.M * s.N, 4);
    for (const bool with_bias : {false, true}) {
      for (const bool add : {false, true}) {
        std::vector<Bf16> y = before;
        run(Product{.a = x.a,
                    .b = x.b,
                    .M = s.M,
                    .K = s.K,
                    .N = s.N,
                    .y = y.data(),
                    .bias = with_bias ? bias.data() : nullptr,
                    .add = add},
            isa);
        std::vector<double> want = x.exact;
        for (size_t i = 0; i < want.size(); ++i) {
          if (with_bias) want[i] += double{widen(bias[i % static_cast<size_t>(s.N)])};
          if (add) want[i] += double{widen(before[i])};
        }
        EXPECT_LT(distance(y, want), kRounding<Bf16> + kSums);
      }
    }
  });
}

TEST(Product, WritesAndAddsInFp32WithTheSameBitsOnAnyNumberOfThreads) {
  const int threads_before = omp_get_max_threads();
  for_operands([](const Operands& x, system::Isa isa) {
    const ProductSizes& s = x.s;
    const auto before = random_values(s.M * s.N, 4);
    for (const bool add : {false, true}) {
      std::vector<double> want = x.exact;
      for (size_t i = 0; add && i < want.size(); ++i) want[i] += double{before[i]};
      std::vector<float> first;
      for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        auto sums = before;
        run(Product{.a = x.a,
                    .b = x.b,
                    .M = s.M,
                    .K = s.K,
                    .N = s.N,
                    .y = nullptr,
                    .add = add,
                    .wide = sums.data()},
            isa);
        EXPECT_LT(distance(sums, want), kSums) << add;
        if (first.empty()) first = sums;
        EXPECT_TRUE(same_bits(first, sums)) << threads;
      }
    }
  });
  omp_set_num_threads(threads_before);
}

TEST(Product, HasTheSameBitsWhateverTheCache) {
  const Operands x({70, 2100, 330}, false, true);
  for (const system::Isa isa : all_isas()) {
    SCOPED_TRACE(system::isa_name(isa));
    const auto of_cache = [&](int64_t bytes) {
      std::vector<Bf16> y(70 * 330);
      run(Product{.a = x.a,
                  .b = x.b,
                  .M = 70,
                  .K = 2100,
                  .N = 330,
                  .y = y.data(),
                  .cache_bytes = bytes},
          isa);
      return y;
    };
    const auto first = of_cache(system::second_cache_bytes());
    for (const int64_t bytes : {1, 1 << 20, 1 << 24}) {
      EXPECT_TRUE(same_bits(first, of_cache(bytes))) << bytes;
    }
  }
}

TEST(Product, KeepsInfinitiesAndNaNToTheirRows) {
  Operands x({9, 20, 18}, false, true);
  narrow(INFINITY, &x.a_data[static_cast<size_t>(2 * x.a.row)]);
  narrow(NAN, &x.a_data[static_cast<size_t>(8 * x.a.row + 19)]);
  for (const system::Isa isa : all_isas()) {
    SCOPED_TRACE(system::isa_name(isa));
    std::vector<Bf16> y(9 * 18);
    run(Product{.a = x.a, .b = x.b, .M = 9, .K = 20, .N = 18, .y = y.data()}, isa);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = i / 18;
      EXPECT_EQ(std::isinf(widen(y[i])), row == 2) << i;
      EXPECT_EQ(std::isnan(widen(y[i])), row == 8) << i;
    }
  }
}

/// Configures the calling thread's tile registers in another way than the kernels do.
__attribute__((target("amx-tile"))) void configure_foreign_tiles() {
  struct Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {8, 8};
    uint8_t rows[16] = {3, 3};
  };
  alignas(64) static constexpr Configuration kConfiguration;
  _tile_loadconfig(&kConfiguration);
}
/// Returns whether the calling thread's tile registers are in use. After their release
/// they are not.
bool uses_tiles() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low >> 17 & 3U) != 0;
}

TEST(Product, TakesTheTileRegistersFromOthersAndReleasesThem) {
  if (system::best_isa() != system::Isa::Amx) GTEST_SKIP() << "needs AMX";
  const Operands x({70, 40, 50}, true, false);
  std::vector<float> q(40 * 16, 0.5F);
  std::vector<Bf16> narrow_q(q.size());
  convert(q.data(), narrow_q.data(), 40 * 16);
  std::vector<Bf16> out(narrow_q.size());
  std::vector<float> lse(40);
  const AttentionStrides strides = attention_strides(40, 1, 16);
  const AttentionInput<Bf16> input{narrow_q.data(), strides};
  const AttentionShape shape{1, 40, 40, 1, 1, 16, 0, 0.25F, nullptr};
#pragma omp parallel
  configure_foreign_tiles();
  EXPECT_TRUE(uses_tiles());
  std::vector<Bf16> y(70 * 50);
  run(Product{.a = x.a, .b = x.b, .M = 70, .K = 40, .N = 50, .y = y.data()});
  EXPECT_LT(distance(y, x.exact), kRounding<Bf16> + kSums);
  int users = 0;
#pragma omp parallel reduction(+ : users)
  users += uses_tiles() ? 1 : 0;
  EXPECT_EQ(users, 0);
#pragma omp parallel
  configure_foreign_tiles();
  run(AttentionForward<Bf16>{
      shape, input, input, input, {out.data(), strides}, lse.data()});
  for (const Bf16 value : out) EXPECT_EQ(widen(value), 0.5F);
#pragma omp parallel reduction(+ : users)
  users += uses_tiles() ? 1 : 0;
  EXPECT_EQ(users, 0);
}

}  // namespace
}  // namespace longhaul::kernels::testing
