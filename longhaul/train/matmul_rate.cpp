#include "longhaul/train/matmul_rate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>

#include "longhaul/tensor/dtype.h"

namespace longhaul::train {

double measure_matmul_rate(DType dtype, c10::Device device) {
  const at::NoGradGuard no_grad;
  using Clock = std::chrono::steady_clock;
  // Small enough for a slow CPU, large enough to leave the caches.
  constexpr int64_t kRows = 512;
  constexpr int64_t kFeatures = 1024;
  const auto options = at::TensorOptions().dtype(to_scalar_type(dtype)).device(device);
  const at::Tensor x = at::ones({kRows, kFeatures}, options);
  const at::Tensor w = at::ones({kFeatures, kFeatures}, options);
  // The result is read, so that an asynchronous device has finished.
  const auto run = [&] {
    const auto start = Clock::now();
    (void)at::linear(x, w).select(0, 0).select(0, 0).item<float>();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  run();
  double best = run();
  for (int i = 0; i < 6; ++i) best = std::min(best, run());
  return 2.0 * kRows * kFeatures * kFeatures / best;
}

}  // namespace longhaul::train
