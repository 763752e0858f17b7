#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "longhaul/cuda/kernels/cuda_failure.h"
#include "longhaul/ops/kernels/cuda.h"

// All kernels include this header. nvcc compiles them. For tests the host's compiler
// compiles them too, with the headers of tests/cuda_host in the place of the CUDA
// headers.

namespace longhaul::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kBlock = 256;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}
__device__ inline void assign(float& to, float x) { to = x; }
__device__ inline void assign(Bf16& to, float x) {
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/// Returns x rounded to T.
template <typename T>
__device__ float rounded(float x) {
  T held;
  assign(held, x);
  return to_float(held);
}

/// N elements side by side, in registers.
template <typename T, int N>
struct Pack {
  T of[N];
};

/// The number of elements of T in an access of 16 bytes.
template <typename T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

/// Loads N elements, 16 bytes at a time if N elements take at least 16 bytes; `from` must
/// then be aligned. store() has the same rule.
template <int N, typename T>
__device__ Pack<T, N> load(const T* from) {
  constexpr int kStep = N < kWide<T> ? 1 : kWide<T>;
  Pack<T, N> pack;
  for (int i = 0; i < N; i += kStep) {
    if constexpr (kStep == 1) {
      pack.of[i] = from[i];
    } else {
      const uint4 words = *reinterpret_cast<const uint4*>(from + i);
      memcpy(pack.of + i, &words, 16);
    }
  }
  return pack;
}
template <int N, typename T>
__device__ void store(T* to, const Pack<T, N>& pack) {
  constexpr int kStep = N < kWide<T> ? 1 : kWide<T>;
  for (int i = 0; i < N; i += kStep) {
    if constexpr (kStep == 1) {
      to[i] = pack.of[i];
    } else {
      unsigned words[4];
      memcpy(words, pack.of + i, 16);
      // The call makes one store. For four words nvcc sometimes makes four stores.
      __stcg(reinterpret_cast<uint4*>(to + i), {words[0], words[1], words[2], words[3]});
    }
  }
}

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Combines one value of each thread over the block in a fixed order; every thread gets
/// the result. The block has whole warps and at most kBlock threads, all of which must
/// call this function.
template <typename Combine>
__device__ float block_combine(float value, Combine combine) {
  __shared__ float warps[kBlock / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  __syncthreads();  // the readers of the last call are done
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  float result = warps[0];
  const auto count = static_cast<int>(blockDim.x) / kWarp;
  for (int w = 1; w < count; ++w) result = combine(result, warps[w]);
  return result;
}

/// The number of blocks, and of threads in a block.
struct Grid {
  Grid(int64_t of_blocks, int of_threads = kBlock)
      : blocks(of_blocks), threads(of_threads) {}
  int64_t blocks;
  int threads;
};

/// Enqueues a kernel. Throws Error with `name` if the launch fails.
template <typename... A>
void launch(const char* name, void (*kernel)(A...), Grid grid, Stream stream,
            const std::type_identity_t<A>&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.stream = stream;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status != cudaSuccess) launch_failed(name, cudaGetErrorString(status));
}

/// Returns whether all of these addresses can be read and written 16 bytes at a time.
template <typename... P>
bool aligned(const P*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

/// Returns whether all sizes are multiples of the number of elements in 16 bytes.
template <typename T, typename... Sizes>
bool in_wide_steps(Sizes... sizes) {
  return ((sizes % kWide<T> == 0) && ...);
}

/// Calls act(constant) with the number of elements that a thread takes at a time: the
/// elements of 16 bytes, or one.
template <typename T, typename Act>
void with_width(bool wide, const Act& act) {
  if (wide) {
    act(std::integral_constant<int, kWide<T>>());
  } else {
    act(std::integral_constant<int, 1>());
  }
}

inline int64_t blocks_of(int64_t items, int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

/// Defines run() and scratch_floats() of a kernel by functions of the file that uses the
/// macro: enqueue(a, stream), or enqueue(a, stream, scratch) with room for scratch_of(a)
/// floats.
#define LH_CUDA_RUN(Kernel) LH_CUDA_RUN_WITH(Kernel, 0, enqueue(a, stream))
#define LH_CUDA_RUN_WITH_SCRATCH(Kernel) \
  LH_CUDA_RUN_WITH(Kernel, scratch_of(a), enqueue(a, stream, scratch))
#define LH_CUDA_RUN_WITH(Kernel, floats, call) \
  LH_CUDA_RUN_OF(Kernel<float>, floats, call)  \
  LH_CUDA_RUN_OF(Kernel<Bf16>, floats, call)
#define LH_CUDA_RUN_OF(Kernel, floats, call)                                  \
  template <>                                                                 \
  void run(const Kernel& a, Stream stream, [[maybe_unused]] float* scratch) { \
    call;                                                                     \
  }                                                                           \
  template <>                                                                 \
  int64_t scratch_floats([[maybe_unused]] const Kernel& a) {                  \
    return floats;                                                            \
  }

}  // namespace longhaul::kernels::cuda
