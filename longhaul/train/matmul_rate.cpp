#include "longhaul/train/matmul_rate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>

#include <algorithm>

#include "longhaul/system/stopwatch.h"
#include "longhaul/tensor/dtype.h"

namespace longhaul::train {
namespace {

/// One product is [rows, features] x [features, features], so many are timed together.
struct Size {
  int64_t rows;
  int64_t features;
  int together;
};

/// On a CPU small enough for a slow one, large enough to leave the caches. A GPU fills
/// only with more, and what starts a kernel must not count.
Size size_for(c10::Device device) {
  return device.is_cuda() ? Size{8192, 4096, 8} : Size{512, 1024, 1};
}

/// No two neighbours alike: a GPU that multiplies ones saves power and is faster than
/// with weights.
at::Tensor values(int64_t rows, int64_t features, const at::TensorOptions& options) {
  return at::arange(rows * features, options.dtype(at::kFloat))
      .sin_()
      .view({rows, features})
      .to(options);
}

}  // namespace

double measure_matmul_rate(DType dtype, c10::Device device) {
  const at::NoGradGuard no_grad;
  const Size size = size_for(device);
  const auto options = at::TensorOptions().dtype(to_scalar_type(dtype)).device(device);
  const at::Tensor x = values(size.rows, size.features, options);
  const at::Tensor w = values(size.features, size.features, options);
  // A result is read, so that an asynchronous device has finished.
  const auto run = [&] {
    const Stopwatch clock;
    at::Tensor y;
    for (int i = 0; i < size.together; ++i) y = at::linear(x, w);
    (void)y.select(0, 0).select(0, 0).item<float>();
    return clock.seconds();
  };
  run();
  double best = run();
  for (int i = 0; i < 6; ++i) best = std::min(best, run());
  return 2.0 * static_cast<double>(size.rows * size.features * size.features) *
         size.together / best;
}

}  // namespace longhaul::train
