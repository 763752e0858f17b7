#pragma once

// This header has what the kernels use of CUDA, for the host. It is found instead of
// CUDA's own header where this folder is on the include path, so that the same sources
// can be compiled and tested without a GPU. Streams are ignored: a launch has ended when
// it returns.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tests/cuda_host/fibers.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
// Shared memory can be static, since blocks run one after another.
#define __shared__ static

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned of_x) : x(of_x) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/// CUDA's vector of 16 bytes, read and written as a whole: an access that is not aligned
/// fails the launch.
struct alignas(16) uint4 {
  unsigned x, y, z, w;
  uint4() = default;
  uint4(unsigned a, unsigned b, unsigned c, unsigned d) : x(a), y(b), z(c), w(d) {}
  uint4(const uint4& other) {
    longhaul::cuda_host::check_aligned(&other, 16);
    copy(other);
  }
  uint4& operator=(const uint4& other) {
    longhaul::cuda_host::check_aligned(this, 16);
    longhaul::cuda_host::check_aligned(&other, 16);
    copy(other);
    return *this;
  }

 private:
  void copy(const uint4& other) {
    x = other.x;
    y = other.y;
    z = other.z;
    w = other.w;
  }
};

inline void __syncthreads(std::source_location at = std::source_location::current()) {
  longhaul::cuda_host::wait_for_block(at);
}

inline void __syncwarp(unsigned mask = 0xffffffffU,
                       std::source_location at = std::source_location::current()) {
  longhaul::cuda_host::exchange(mask, 0, longhaul::cuda_host::own_lane(), at);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              std::source_location at = std::source_location::current()) {
  const unsigned own = longhaul::cuda_host::own_lane();
  const auto part = static_cast<unsigned>(width);
  const unsigned from = own / part * part + static_cast<unsigned>(lane) % part;
  return longhaul::cuda_host::exchange_as(mask, value, from, at);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes,
                  std::source_location at = std::source_location::current()) {
  const unsigned from = longhaul::cuda_host::own_lane() ^ static_cast<unsigned>(lanes);
  return longhaul::cuda_host::exchange_as(mask, value, from, at);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes,
                   std::source_location at = std::source_location::current()) {
  const unsigned own = longhaul::cuda_host::own_lane();
  const unsigned from = own + lanes < 32 ? own + lanes : own;
  return longhaul::cuda_host::exchange_as(mask, value, from, at);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes,
                 std::source_location at = std::source_location::current()) {
  const unsigned own = longhaul::cuda_host::own_lane();
  const unsigned from = own >= lanes ? own - lanes : own;
  return longhaul::cuda_host::exchange_as(mask, value, from, at);
}

template <typename T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to = before + value;
  return before;
}

template <typename T>
T __ldg(const T* from) {
  return *from;
}

template <typename T>
void __stcg(T* to, std::type_identity_t<T> value) {
  *to = value;
}

inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess = 0 };
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

template <typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(A...),
                               const std::type_identity_t<A>&... arguments) {
  longhaul::cuda_host::run_grid(config->gridDim.x, config->blockDim.x,
                                [&] { kernel(arguments...); });
  return cudaSuccess;
}
