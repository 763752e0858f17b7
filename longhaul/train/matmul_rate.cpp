#include "longhaul/train/matmul_rate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>

#include "longhaul/device/device.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/tensor/dtype.h"

namespace longhaul::train {
namespace {

/// One product is [rows, features] x [features, features], so many are timed together.
struct Size {
  int64_t rows;
  int64_t features;
  int together;

  double flops() const {
    return 2.0 * static_cast<double>(rows * features * features) * together;
  }
};

/// On a CPU small enough for a slow one, large enough to leave the caches.
constexpr Size kOfCpu = {512, 1024, 1};
/// A GPU fills only with more, and what starts a kernel must not count.
constexpr Size kOfGpu = {8192, 8192, 8};
/// Runs on a GPU whose median counts, after those that warm it up.
constexpr int kWarmUps = 2;
constexpr size_t kRuns = 7;

/// No two neighbours alike: a GPU that multiplies ones saves power and is faster than
/// with weights.
at::Tensor values(int64_t rows, int64_t features, const at::TensorOptions& options) {
  return at::arange(rows * features, options.dtype(at::kFloat))
      .sin_()
      .view({rows, features})
      .to(options);
}

double rate_on_cpu(const at::TensorOptions& options) {
  const at::Tensor x = values(kOfCpu.rows, kOfCpu.features, options);
  const at::Tensor w = values(kOfCpu.features, kOfCpu.features, options);
  const auto run = [&] {
    const Stopwatch clock;
    const at::Tensor y = at::linear(x, w);
    (void)y.select(0, 0).select(0, 0).item<float>();
    return clock.seconds();
  };
  run();
  double best = run();
  for (int i = 0; i < 6; ++i) best = std::min(best, run());
  return kOfCpu.flops() / best;
}

/// The median: other work on a GPU is no excuse, but a clock that has not risen is none
/// either.
double rate_on_device(const Size& size, const at::TensorOptions& options) {
  const at::Tensor x = values(size.rows, size.features, options);
  const at::Tensor w = values(size.features, size.features, options);
  at::Tensor y = at::linear(x, w);
  const auto run = [&] {
    device::mark(options.device()).synchronize();
    const Stopwatch clock;
    for (int i = 0; i < size.together; ++i) at::mm_out(y, x, w);
    device::mark(options.device()).synchronize();
    return clock.seconds();
  };
  for (int i = 0; i < kWarmUps; ++i) run();
  std::array<double, kRuns> seconds = {};
  for (double& one : seconds) one = run();
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return size.flops() / seconds[kRuns / 2];
}

}  // namespace

double measure_matmul_rate(DType dtype, c10::Device device) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(to_scalar_type(dtype)).device(device);
  if (device.is_cpu()) return rate_on_cpu(options);
  // Beside what training holds there may be little room.
  for (Size size = device.is_cuda() ? kOfGpu : kOfCpu;;) {
    try {
      return rate_on_device(size, options);
    } catch (const c10::OutOfMemoryError&) {
      if (size.features <= kOfCpu.features) throw;
      size = {size.rows / 2, size.features / 2, 8 * size.together};
    }
  }
}

}  // namespace longhaul::train
