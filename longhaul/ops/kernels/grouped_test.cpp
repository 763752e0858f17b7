#include <omp.h>

#include "tests/support/kernel_cases.h"

// Tests that the products of experts give the bits of one product for each expert.

namespace longhaul::kernels::testing {
namespace {

/// Sizes of a grouped product, and the rows of each expert.
struct Group {
  std::vector<int32_t> rows;
  int64_t K, N;

  int64_t experts() const { return static_cast<int64_t>(rows.size()); }
  std::vector<int32_t> offsets() const {
    std::vector<int32_t> all{0};
    for (const int32_t count : rows) all.push_back(all.back() + count);
    return all;
  }
  int64_t all_rows() const { return offsets().back(); }
};

// There are experts without rows, with one row, and with all rows; sizes below a tile's
// and between multiples of it; and so many rows that several threads share an expert.
const Group kGroups[] = {
    {{1}, 1, 1},          {{0, 5, 0, 0, 2, 0}, 7, 9},     {{0, 0, 40, 0}, 130, 70},
    {{0, 0}, 8, 8},       {{17, 1, 33, 64, 3}, 264, 100}, {{70, 0, 20, 90}, 512, 96},
    {{2100, 3}, 16, 600}, {{30, 31, 32, 33}, 2100, 66}};

/// Calls body(group, isa, threads) for all groups, on the instruction sets that have
/// products.
template <typename Body>
void for_groups(const Body& body) {
  const int threads_before = omp_get_max_threads();
  for (const Group& group : kGroups) {
    for (const system::Isa isa : all_isas()) {
      for (const int threads : {1, 2, 5}) {
        SCOPED_TRACE(::testing::Message()
                     << system::isa_name(isa) << ", " << group.experts() << " experts, "
                     << group.all_rows() << " rows, " << group.K << " x " << group.N
                     << ", threads " << threads);
        omp_set_num_threads(threads);
        body(group, isa);
      }
    }
  }
  omp_set_num_threads(threads_before);
}

constexpr int64_t kGap = 6;  ///< elements that lie between rows, and between matrices

TEST(GroupedProduct, HasTheBitsOfAProductForEachExpert) {
  for_groups([](const Group& g, system::Isa isa) {
    const int64_t R = g.all_rows(), x_stride = g.K + kGap, y_stride = g.N + kGap;
    const int64_t matrix = g.K * g.N + kGap;
    const auto x = random_values<Bf16>((R + 1) * x_stride, 1);
    const auto b = random_values<Bf16>(g.experts() * matrix, 2);
    const auto offsets = g.offsets();
    for (const bool by_columns : {false, true}) {
      const MatrixInput first{b.data(), by_columns ? 1 : g.N, by_columns ? g.K : 1};
      const auto before = random_values<Bf16>((R + 1) * y_stride, 3);
      auto y = before, want = before;
      run(GroupedProduct{x.data(), x_stride, offsets.data(), g.experts(), first, matrix,
                         g.K, g.N, y.data(), y_stride},
          isa);
      for (int64_t e = 0; e < g.experts(); ++e) {
        const int64_t row = offsets[static_cast<size_t>(e)];
        const int64_t rows = g.rows[static_cast<size_t>(e)];
        if (rows == 0) continue;
        run(Product{.a = {x.data() + row * x_stride, x_stride, 1},
                    .b = {b.data() + e * matrix, first.row, first.column},
                    .M = rows,
                    .K = g.K,
                    .N = g.N,
                    .y = want.data() + row * y_stride,
                    .stride = y_stride},
            isa);
      }
      EXPECT_TRUE(same_bits(y, want)) << by_columns;
    }
  });
}

TEST(GroupedGradient, HasTheBitsOfAProductForEachExpert) {
  for_groups([](const Group& g, system::Isa isa) {
    const int64_t R = g.all_rows(), M = g.K, dy_stride = M + kGap, x_stride = g.N + kGap;
    const int64_t matrix = M * g.N + kGap;
    const auto dy = random_values<Bf16>((R + 1) * dy_stride, 1);
    const auto x = random_values<Bf16>((R + 1) * x_stride, 2);
    const auto offsets = g.offsets();
    for (const bool add : {false, true}) {
      const auto before = random_values(g.experts() * matrix, 3);
      auto wide = before, want = before;
      auto narrow = random_values<Bf16>(g.experts() * matrix, 4), want_narrow = narrow;
      GroupedGradient<Bf16> gradient{dy.data(),      dy_stride,   x.data(), x_stride,
                                     offsets.data(), g.experts(), M,        g.N,
                                     nullptr,        wide.data(), matrix,   add};
      run(gradient, isa);
      gradient.wide = nullptr;
      gradient.y = narrow.data();
      run(gradient, isa);
      for (int64_t e = 0; e < g.experts(); ++e) {
        const int64_t row = offsets[static_cast<size_t>(e)];
        const int64_t rows = g.rows[static_cast<size_t>(e)];
        if (rows == 0) {
          for (int64_t i = 0; !add && i < M * g.N; ++i) {
            want[static_cast<size_t>(e * matrix + i)] = 0.0F;
            want_narrow[static_cast<size_t>(e * matrix + i)] = {};
          }
          continue;
        }
        Product product{.a = {dy.data() + row * dy_stride, 1, dy_stride},
                        .b = {x.data() + row * x_stride, x_stride, 1},
                        .M = M,
                        .K = rows,
                        .N = g.N,
                        .y = nullptr,
                        .add = add,
                        .wide = want.data() + e * matrix};
        run(product, isa);
        product.wide = nullptr;
        product.y = want_narrow.data() + e * matrix;
        run(product, isa);
      }
      EXPECT_TRUE(same_bits(wide, want)) << add;
      EXPECT_TRUE(same_bits(narrow, want_narrow)) << add;
    }
  });
}

TEST(Rows, AreGatheredAndAddedInTheirOrder) {
  for_all([](auto t, system::Isa isa) {
    using T = decltype(t);
    for (const int64_t features : {1, 37, 768}) {
      for (const int64_t each : {1, 2, 5}) {
        constexpr int64_t kRows = 90;
        // With each == 2 the rows of x and y are further apart than they are long.
        const int64_t in = features + (each == 2 ? 3 : 0);
        const int64_t out = features + (each == 2 ? 5 : 0);
        const auto x = random_values<T>(kRows * in, 1);
        std::vector<int64_t> row;
        for (int64_t i = 0; i < 40 * each; ++i) row.push_back(i * 37 % kRows);
        std::vector<T> y(row.size() * static_cast<size_t>(out)), same = y;
        run(GatherRows<T>{x.data(), in, row.data(), 40 * each, features, y.data(), out},
            isa);
        std::vector<T> sums(static_cast<size_t>(40 * features)), want = sums;
        run(SumRows<T>{x.data(), in, row.data(), 40, each, features, sums.data()}, isa);
        for (int64_t i = 0; i < 40 * features; ++i) {
          float sum = 0.0F;
          for (int64_t k = 0; k < each; ++k) {
            const int64_t r = i / features * each + k;
            const T one =
                x[static_cast<size_t>(row[static_cast<size_t>(r)] * in + i % features)];
            same[static_cast<size_t>(r * out + i % features)] = one;
            sum = k == 0 ? widen(one) : sum + widen(one);
          }
          narrow(sum, &want[static_cast<size_t>(i)]);
        }
        EXPECT_TRUE(same_bits(y, same)) << features;
        EXPECT_TRUE(same_bits(sums, want)) << features << ", " << each;
      }
    }
  });
}

}  // namespace
}  // namespace longhaul::kernels::testing
