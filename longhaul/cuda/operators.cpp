#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <ATen/ops/empty.h>

#include "longhaul/cuda/kernels/update_kernels.h"
#include "longhaul/ops/fused/fused_kernels.h"
#include "longhaul/ops/kernels/cuda.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/operator_kernels.h"

namespace longhaul::cuda {
namespace {

using ops::fused::Memory;

/// Makes a device current while the object lives, and has the device's current stream, on
/// which kernels are enqueued.
struct Here {
  explicit Here(at::Device device) : guard(device) {}
  c10::cuda::CUDAGuard guard;
  kernels::cuda::Stream stream = c10::cuda::getCurrentCUDAStream().stream();
};

/// Returns uninitialized memory for kernels that the caller enqueues in the current
/// stream. The tensor may be destroyed once the kernels are enqueued, before they have
/// run.
at::Tensor scratch(int64_t count, at::ScalarType type, at::Device device) {
  return at::empty({count}, at::TensorOptions(type).device(device));
}

/// Runs a kernel in the current stream of its device, for implement_by_kernels.
struct OnStream {
  template <typename Kernel>
  static void run(const Kernel& kernel, at::Device device) {
    const Here here(device);
    const int64_t floats = kernels::cuda::scratch_floats(kernel);
    at::Tensor room;
    if (floats > 0) room = scratch(floats, at::kFloat, device);
    kernels::cuda::run(kernel, here.stream, Memory(room));
  }
};

/// Runs the optimizers' updates in the current stream of their device, for
/// implement_updates.
struct Updates {
  static void adamw(const optim::AdamWRange& range, const optim::AdamWScalars& s,
                    int64_t update, at::Device device) {
    optim::cuda::enqueue_adamw(range, s, update, Here(device).stream);
  }
  static void lamb_moments(const optim::AdamWRange& range, const optim::AdamWScalars& s,
                           float decay, int64_t update, double* sums, at::Device device) {
    const Here here(device);
    const int64_t blocks = optim::norm_blocks(range.count);
    const at::Tensor partial = scratch(2 * blocks, at::kDouble, device);
    optim::cuda::enqueue_lamb_moments(range, s, decay, update, Memory(partial),
                                      here.stream);
    optim::cuda::enqueue_total(Memory(partial), blocks, 2, sums, here.stream);
  }
  static void lamb_apply(const optim::AdamWRange& range, const optim::AdamWScalars& s,
                         const optim::LambRate& of, const double* rate, int64_t update,
                         at::Device device) {
    optim::cuda::enqueue_lamb_apply(range, s, of, rate, update, Here(device).stream);
  }
  static void add_squares(std::span<const optim::SquaresRange> parts, format::DType dtype,
                          at::Device device) {
    const Here here(device);
    int64_t blocks = 0;
    for (const auto& part : parts) blocks += optim::norm_blocks(part.count);
    const at::Tensor partial = scratch(blocks, at::kDouble, device);
    optim::cuda::enqueue_squares(parts, dtype, Memory(partial), here.stream);
  }
};

TORCH_LIBRARY_IMPL(longhaul, CUDA, library) {
  ops::fused::implement_by_kernels<OnStream>(library, kernels::Kernels());
  ops::fused::implement_by_kernels<OnStream>(library, kernels::KernelsOfGpus());
  optim::implement_updates<Updates>(library);
}

}  // namespace
}  // namespace longhaul::cuda
