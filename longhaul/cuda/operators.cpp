#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <ATen/ops/empty.h>

#include "longhaul/cuda/kernels/update_kernels.h"
#include "longhaul/ops/fused/fused_kernels.h"
#include "longhaul/ops/kernels/cuda.h"
#include "longhaul/optim/grad_norm.h"
#include "longhaul/optim/operator_kernels.h"

namespace longhaul::cuda {
namespace {

using ops::fused::pointer, ops::fused::with_type;

/// Calls act(stream), where kernels of this device are enqueued.
template <typename Act>
void on_stream(at::Device device, const Act& act) {
  const c10::cuda::CUDAGuard guard(device);
  act(c10::cuda::getCurrentCUDAStream().stream());
}

/// Memory that what is enqueued now may use until it has ended.
at::Tensor scratch(int64_t count, at::ScalarType type, at::Device device) {
  return at::empty({count}, at::TensorOptions(type).device(device));
}

struct OnStream {
  template <typename Kernel>
  static void run(const Kernel& kernel, at::Device device) {
    on_stream(device, [&](auto stream) { kernels::cuda::run(kernel, stream); });
  }
  template <typename T>
  static void run(const kernels::RmsNormBackward<T>& kernel, at::Device device) {
    on_stream(device, [&](auto stream) {
      const at::Tensor partial =
          scratch(kernels::cuda::partial_sums(kernel), at::kFloat, device);
      kernels::cuda::run(kernel, pointer<float>(partial), stream);
    });
  }
};

void embedding_gradient(const at::Tensor& dy, const at::Tensor& rows,
                        const at::Tensor& order, const at::Tensor& grad) {
  with_type(dy, [&]<typename T>(T) {
    OnStream::run(
        kernels::cuda::EmbeddingGradient<T>{
            pointer<T>(dy), pointer<int64_t>(rows), pointer<int64_t>(order), dy.size(0),
            dy.size(1), grad.size(0), pointer<float>(grad)},
        dy.device());
  });
}

void gelu_forward(const at::Tensor& x, bool tanh, const at::Tensor& y) {
  with_type(x, [&]<typename T>(T) {
    OnStream::run(
        kernels::cuda::GeluForward<T>{pointer<T>(x), x.numel(), tanh, pointer<T>(y)},
        x.device());
  });
}

void gelu_backward(const at::Tensor& dy, const at::Tensor& x, bool tanh,
                   const at::Tensor& dx) {
  with_type(x, [&]<typename T>(T) {
    OnStream::run(kernels::cuda::GeluBackward<T>{pointer<T>(dy), pointer<T>(x), x.numel(),
                                                 tanh, pointer<T>(dx)},
                  x.device());
  });
}

void merge_attention(const at::Tensor& part, const at::Tensor& part_lse,
                     const at::Tensor& out, const at::Tensor& lse) {
  with_type(part, [&]<typename T>(T) {
    OnStream::run(
        kernels::cuda::MergeAttention<T>{
            pointer<T>(part), pointer<float>(part_lse), part.size(0), part.size(1),
            part.size(2), part.size(3), pointer<float>(out), out.stride(0),
            pointer<float>(lse), lse.stride(0), lse.stride(1)},
        part.device());
  });
}

/// Updates for register_updates.
struct Updates {
  static void adamw(const optim::AdamWRange& range, const optim::AdamWScalars& s,
                    int64_t update, at::Device device) {
    on_stream(device,
              [&](auto stream) { optim::cuda::enqueue_adamw(range, s, update, stream); });
  }
  static void lamb_moments(const optim::AdamWRange& range, const optim::AdamWScalars& s,
                           float decay, int64_t update, double* sums, at::Device device) {
    on_stream(device, [&](auto stream) {
      const int64_t blocks = optim::norm_blocks(range.count);
      const at::Tensor partial = scratch(2 * blocks, at::kDouble, device);
      optim::cuda::enqueue_lamb_moments(range, s, decay, update, pointer<double>(partial),
                                        stream);
      optim::cuda::enqueue_total(pointer<double>(partial), blocks, 2, sums, stream);
    });
  }
  static void lamb_apply(const optim::AdamWRange& range, const optim::AdamWScalars& s,
                         const optim::LambRate& of, const double* rate, int64_t update,
                         at::Device device) {
    on_stream(device, [&](auto stream) {
      optim::cuda::enqueue_lamb_apply(range, s, of, rate, update, stream);
    });
  }
  static void add_squares(std::span<const optim::SquaresRange> parts, DType dtype,
                          at::Device device) {
    on_stream(device, [&](auto stream) {
      int64_t blocks = 0;
      for (const auto& part : parts) blocks += optim::norm_blocks(part.count);
      const at::Tensor partial = scratch(blocks, at::kDouble, device);
      optim::cuda::enqueue_squares(parts, dtype, pointer<double>(partial), stream);
    });
  }
};

TORCH_LIBRARY_IMPL(longhaul, CUDA, library) {
  ops::fused::register_kernels<OnStream>(library);
  library.impl("embedding_gradient", &embedding_gradient);
  library.impl("gelu_forward", &gelu_forward);
  library.impl("gelu_backward", &gelu_backward);
  library.impl("merge_attention", &merge_attention);
  optim::register_updates<Updates>(library);
}

}  // namespace
}  // namespace longhaul::cuda
