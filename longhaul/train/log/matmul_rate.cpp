#include "longhaul/train/log/matmul_rate.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "longhaul/device/device.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/tensor/scalar_type.h"

namespace longhaul::train {
namespace {

/// The sizes of a product [rows, features] x [features, features].
struct Size {
  int64_t rows;
  int64_t features;

  double flops() const { return 2.0 * static_cast<double>(rows * features * features); }
};

/// The product on a CPU: small enough for a slow CPU, too large for the caches.
constexpr Size kOfCpu = {512, 1024};
/// The product of a short measurement on a CPU, which is nearly as fast.
constexpr Size kShortOfCpu = {128, 1024};
/// The products on other devices. A GPU is filled by the largest only, and on a slow
/// device nobody would wait for the largest.
constexpr Size kSmallest = {256, 256};
constexpr Size kLargest = {8192, 8192};
/// Seconds that a timed run takes at least, so that starting a kernel does not count, and
/// the most products in a run.
constexpr double kLongEnough = 0.02;
constexpr double kMostTogether = 8.0;
/// Untimed runs that warm a device up.
constexpr int kWarmUps = 2;
/// Timed runs of a full and of a short measurement. On a device their median counts.
constexpr size_t kRuns = 7;
constexpr size_t kRunsOfShort = 3;
/// On a CPU: a product is undisturbed if this process has at least this share of its
/// processors' time. A measurement without such a product goes on for so many seconds.
constexpr double kUndisturbed = 0.9;
constexpr double kPatience = 0.3;

/// Returns a matrix whose neighbouring elements differ: a GPU that multiplies ones saves
/// power and is faster than with weights.
at::Tensor values(int64_t rows, int64_t features, const at::TensorOptions& options) {
  return at::arange(rows * features, options.dtype(at::kFloat))
      .sin_()
      .view({rows, features})
      .to(options);
}

/// Returns the seconds of processor time that this process has had.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

size_t runs_of(Effort effort) { return effort == Effort::Full ? kRuns : kRunsOfShort; }

MatmulRate rate_on_cpu(const at::TensorOptions& options, Effort effort) {
  const Size size = effort == Effort::Full ? kOfCpu : kShortOfCpu;
  const at::Tensor x = values(size.rows, size.features, options);
  const at::Tensor w = values(size.features, size.features, options);
  const auto threads = static_cast<double>(at::get_num_threads());
  MatmulRate best;
  const auto run = [&] {
    const double before = processor_seconds();
    const system::Stopwatch clock;
    const at::Tensor y = ops::linear_product(x, w);
    (void)y.select(0, 0).select(0, 0).item<float>();
    const double seconds = clock.seconds();
    const double rate = size.flops() / seconds;
    if (rate < best.flops) return;
    best = {rate, std::min(1.0, (processor_seconds() - before) / (seconds * threads))};
  };
  const system::Stopwatch all;
  run();
  best = {};
  for (size_t i = 0; i < runs_of(effort); ++i) run();
  if (effort == Effort::Short) return best;
  // Other work on the machine comes and goes. The loop waits for a moment without such
  // work, but not for long.
  while (best.share < kUndisturbed && all.seconds() < kPatience) run();
  return best;
}

/// Products of one size on an accelerator.
class Products {
 public:
  Products(const Size& size, const at::TensorOptions& options)
      : device_(options.device()),
        x_(values(size.rows, size.features, options)),
        w_(values(size.features, size.features, options)),
        y_(at::linear(x_, w_)) {}

  double seconds(int together) {
    device::mark(device_).synchronize();
    const system::Stopwatch clock;
    for (int i = 0; i < together; ++i) at::mm_out(y_, x_, w_);
    device::mark(device_).synchronize();
    return clock.seconds();
  }

 private:
  c10::Device device_;
  at::Tensor x_, w_, y_;
};

/// Measures products of growing size. Each size has four times the memory of the one
/// before. The size grows while the device ends a product too soon to be timed and has
/// the memory, of which training may leave little.
MatmulRate rate_on_device(const at::TensorOptions& options, Effort effort) {
  Size size = kSmallest;
  std::optional<Products> products(std::in_place, size, options);
  double one = 0.0;
  for (;;) {
    products->seconds(1);
    one = products->seconds(1);
    if (one >= kLongEnough || size.features >= kLargest.features) break;
    const Size larger = {2 * size.rows, 2 * size.features};
    try {
      products.emplace(larger, options);
      size = larger;
    } catch (const c10::OutOfMemoryError&) {
      products.emplace(size, options);
      break;
    }
  }
  const int together =
      static_cast<int>(std::clamp(kLongEnough / std::max(one, 1e-9), 1.0, kMostTogether));
  for (int i = 0; i < kWarmUps; ++i) products->seconds(together);
  std::vector<double> seconds(runs_of(effort));
  for (double& run : seconds) run = products->seconds(together);
  // The median ignores other work on the GPU as well as a clock that has not risen yet.
  const auto median = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), median, seconds.end());
  return {size.flops() * together / *median};
}

}  // namespace

MatmulRate measure_matmul_rate(format::DType dtype, c10::Device device, Effort effort) {
  const at::NoGradGuard no_grad;
  const auto options =
      at::TensorOptions().dtype(tensor::to_scalar_type(dtype)).device(device);
  return device.is_cpu() ? rate_on_cpu(options, effort) : rate_on_device(options, effort);
}

}  // namespace longhaul::train
