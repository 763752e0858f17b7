#pragma once

#include <concepts>
#include <cstdint>
#include <string>

#include "longhaul/ops/kernels/arguments.h"
#include "longhaul/system/isa.h"

// The kernels of arguments.h as loops for a CPU, without Torch and without allocation of
// results. Results depend on the instruction set but neither on the number of OpenMP
// threads nor on the run. Every function may be called from any thread; it forks OpenMP
// threads. Inline functions of this header must be free of loops, because files for
// single instruction sets include it.

namespace longhaul::kernels {

/// Returns a name like "GenuineIntel family 6 model 143, AMX". MKL and oneDNN choose
/// their code by these facts and by the instruction set.
std::string cpu_name();

/// A matrix with element (i, j) at data[i * row + j * column]; one of the strides is 1.
struct MatrixInput {
  const Bf16* data;
  int64_t row, column;
};

/// Computes a [M, K] b [K, N] + bias [N], summed in fp32; the bias may be null. The
/// result goes to y [M, N], rounded once, or to `wide` [M, N] in fp32. One of the two is
/// null; rows of both are `stride` elements apart. With `add` the result is added to the
/// previous content. No size is 0. Inside a parallel region the calling thread computes
/// alone.
struct Product {
  MatrixInput a, b;
  int64_t M, K, N;
  Bf16* y;
  const Bf16* bias = nullptr;
  bool add = false;
  float* wide = nullptr;
  int64_t stride = N;
  /// With AMX, blocks of a factor take half of this size; it does not change the order of
  /// sums.
  int64_t cache_bytes = system::second_cache_bytes();
};

/// Computes y = x b_e for the rows of each expert e, rounded once from fp32 sums. The
/// rows of x [R, K] and y [R, N] are x_stride and y_stride apart; those of expert e are
/// [offsets[e], offsets[e + 1]), and there may be none. The matrices b_e [K, N] lie
/// b_stride apart, and `b` is that of expert 0. Each result has the bits of a Product.
struct GroupedProduct {
  const Bf16* x;
  int64_t x_stride;
  const int32_t* offsets;
  int64_t experts;
  MatrixInput b;
  int64_t b_stride;
  int64_t K, N;
  Bf16* y;
  int64_t y_stride;
};

/// The function that runs a kernel on one instruction set; null if the set has none.
template <typename Kernel>
struct Entry {
  void (*run)(const Kernel&);
};

template <typename... Kernels>
struct Entries : Entry<Kernels>... {};

/// The kernels of a list for elements of type T.
template <typename T, typename List>
struct EntriesOf;
template <typename T, template <typename> class... Listed>
struct EntriesOf<T, KernelList<Listed...>> : Entry<Listed<T>>... {};

/// The kernels of one element type.
template <typename T>
struct TypedKernels : EntriesOf<T, Kernels>,
                      Entries<AttentionForward<T>, AttentionBackward<T>,
                              AttentionForward<T, Results::GoOn>,
                              AttentionBackward<T, Results::GoOn>, Dropout<T>> {};

/// All kernels of one instruction set; an absent kernel is null.
struct KernelTable : TypedKernels<float>,
                     TypedKernels<Bf16>,
                     Entries<Product, GroupedProduct, GroupedGradient<Bf16>> {
  void (*narrow)(const float* x, Bf16* y, int64_t count);
  void (*widen)(const Bf16* x, float* y, int64_t count);
  void (*weight_gradient)(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                          int64_t x_stride, int64_t T, int64_t N, int64_t K, float* grad);
};

// Each function below is in a file of its own with its own compiler flags; only call a
// function whose instruction set the CPU has.
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512bf16_kernels();
const KernelTable& amx_kernels();

/// Returns the kernels of one instruction set. Throws Error if this CPU lacks the set.
const KernelTable& kernels_of(system::Isa isa);

/// Whether a CPU has this kernel.
template <typename Kernel>
concept IsOfCpu = std::derived_from<KernelTable, Entry<Kernel>>;

/// Returns whether the attention kernels take heads of this size.
bool attention_supported(int64_t head_dim);

/// Throws Error if the kernels cannot take the sizes.
void check_attention(const AttentionShape& shape);
/// Throws Error, as the instruction set lacks the kernel.
[[noreturn]] void no_such_kernel(system::Isa isa);

/// Runs a kernel. Throws Error if the kernel cannot take the sizes or this CPU lacks the
/// instruction set.
template <IsOfCpu Kernel>
void run(const Kernel& kernel, system::Isa isa = system::best_isa()) {
  if constexpr (requires { kernel.shape; }) check_attention(kernel.shape);
  const Entry<Kernel>& entry = kernels_of(isa);
  if (entry.run == nullptr) no_such_kernel(isa);
  entry.run(kernel);
}

/// Returns the instruction set whose Product and grouped products are fastest here: the
/// best one but for Intel's processors with AVX512_BF16, which multiply floats faster.
system::Isa product_isa();

/// Returns whether Product, on product_isa(), is faster here than the bf16 products of a
/// library. That is so with AMX, with AVX-512 where Product multiplies floats, and with
/// AVX2 if the CPU lacks AVX-NE-CONVERT.
bool product_available();
/// Returns whether grouped products are faster here than one product of a library for
/// each expert, or as fast.
bool grouped_product_available();

// ---- Buffers

/// Throws std::bad_alloc. Within a parallel region, which no exception may leave, it ends
/// the process by std::terminate() instead, and the handler finds that exception.
[[noreturn]] void fail_of_memory();

/// Converts, rounding to nearest even; NaN stays a quiet NaN. Every instruction set gives
/// the same bits.
void convert(const float* x, Bf16* y, int64_t count,
             system::Isa isa = system::best_isa());
void convert(const Bf16* x, float* y, int64_t count,
             system::Isa isa = system::best_isa());

// ---- Weight gradients

/// Returns whether accumulate_weight_gradient() is faster here than the product of a
/// library and an addition, and Product is not: with AVX512_BF16 and without AMX.
bool weight_gradient_available();

/// Computes grad [N, K] += dy [T, N]^T x [T, K] with bf16 products and fp32 sums, without
/// rounding in between. Both dy and x have row strides; grad is contiguous. Throws Error
/// if the CPU has no AVX512_BF16.
void accumulate_weight_gradient(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                                int64_t x_stride, int64_t T, int64_t N, int64_t K,
                                float* grad);

}  // namespace longhaul::kernels
