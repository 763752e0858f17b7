// The gradients of experts' weights that a GPU computes, against their definition.
#include "tests/cuda_host/guarded.h"

namespace longhaul::cuda_host {
namespace {

using kernels::Bf16, kernels::GroupedGradient;
using kernels::testing::kRounding, kernels::testing::kSums;
using kernels::testing::random_values, kernels::testing::value;

/// The rows of each expert and the sizes of its matrix. Rows of dy and x, and matrices,
/// have `gap` elements between them.
struct Experts {
  std::vector<int32_t> rows;
  int64_t M, N, gap;

  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  int64_t matrix() const { return M * N + gap; }
  std::vector<int32_t> offsets() const {
    std::vector<int32_t> all{0};
    for (const int32_t of_expert : rows) all.push_back(all.back() + of_expert);
    return all;
  }
};

// There are experts without rows, with one row, and with several steps of rows; sizes
// below, at and beyond those of tiles; and rows that allow no access of 16 bytes.
const Experts kExperts[] = {{{1}, 1, 1, 0},
                            {{0, 5, 0, 0, 2, 0}, 7, 9, 3},
                            {{0, 0}, 8, 8, 0},
                            {{0, 0, 40, 0}, 136, 72, 8},
                            {{33, 0, 1, 64}, 24, 136, 0},
                            {{70, 3}, 64, 130, 1},
                            {{16, 32}, 128, 128, 0}};

class Gradients {
 public:
  Gradients(const Experts& experts, bool add) : experts_(experts), add_(add) {}

  template <typename T, typename G>
  void expect_defined() const {
    const Experts& e = experts_;
    const int64_t rows = e.offsets().back();
    const auto dy = random_values<T>((rows + 1) * (e.M + e.gap), 1);
    const auto x = random_values<T>((rows + 1) * (e.N + e.gap), 2);
    const auto before = before_of<G>();
    expect_same_on_gpu([&](const auto& on) -> std::vector<Output> {
      const double tolerance = kRounding<G> + 4 * kSums;
      if constexpr (std::is_same_v<decltype(on), const OnCpu&>) {
        return {{defined(dy, x, before), tolerance, 0.0}};
      } else {
        auto rows_dy = on.buffer(dy), rows_x = on.buffer(x);
        auto offsets = on.buffer(e.offsets());
        auto gradient = on.buffer(before);
        GroupedGradient<T> kernel{.dy = rows_dy.data(),
                                  .dy_stride = e.M + e.gap,
                                  .x = rows_x.data(),
                                  .x_stride = e.N + e.gap,
                                  .offsets = offsets.data(),
                                  .experts = e.count(),
                                  .M = e.M,
                                  .N = e.N,
                                  .y = nullptr,
                                  .wide = nullptr,
                                  .stride = e.matrix(),
                                  .add = add_};
        if constexpr (std::is_same_v<G, float>) {
          kernel.wide = gradient.data();
        } else {
          kernel.y = gradient.data();
        }
        on.run(kernel);
        return {output(gradient.values(), tolerance)};
      }
    });
  }

 private:
  /// Returns what the memory holds before the kernel runs. Without `add_`, the matrices
  /// are NaN, because a kernel that only writes them must not read them.
  template <typename G>
  std::vector<G> before_of() const {
    auto all = random_values<G>(experts_.count() * experts_.matrix(), 3);
    for (size_t i = 0; !add_ && i < all.size(); ++i) {
      const auto at = static_cast<int64_t>(i) % experts_.matrix();
      if (at < experts_.M * experts_.N) kernels::testing::narrow(NAN, &all[i]);
    }
    return all;
  }

  template <typename T, typename G>
  std::vector<double> defined(const std::vector<T>& dy, const std::vector<T>& x,
                              const std::vector<G>& before) const {
    const auto& [rows, M, N, gap] = experts_;
    std::vector<double> all;
    for (size_t i = 0; i < before.size(); ++i) {
      all.push_back(value(before, static_cast<int64_t>(i)));
    }
    const auto offsets = experts_.offsets();
    for (size_t e = 0; e < rows.size(); ++e) {
      for (int64_t i = 0; i < M * N; ++i) {
        double sum = 0.0;
        for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
          sum += value(dy, r * (M + gap) + i / N) * value(x, r * (N + gap) + i % N);
        }
        double& to =
            all[e * static_cast<size_t>(experts_.matrix()) + static_cast<size_t>(i)];
        to = add_ ? to + sum : sum;
      }
    }
    return all;
  }

  const Experts& experts_;
  bool add_;
};

TEST(CudaGroupedGradient, IsTheSumOverTheRowsOfEachExpert) {
  for (const Experts& experts : kExperts) {
    for (const bool add : {false, true}) {
      SCOPED_TRACE(::testing::Message() << experts.M << " x " << experts.N << ", gap "
                                        << experts.gap << ", add " << add);
      const Gradients gradients(experts, add);
      gradients.expect_defined<float, float>();
      gradients.expect_defined<Bf16, float>();
      gradients.expect_defined<Bf16, Bf16>();
    }
  }
}

}  // namespace
}  // namespace longhaul::cuda_host
