#include "longhaul/ops/kernels/cpu.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <omp.h>

#include <array>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/ops/kernels/table.h"

namespace longhaul::kernels {
namespace {

Isa detect() {
  __builtin_cpu_init();
  LH_CHECK(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), "kernels",
           "this CPU has no AVX2 and FMA (x86-64-v3), which longhaul needs");
  const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return Isa::Avx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::Avx512Bf16 : Isa::Avx512;
}

/// Leaf 7, EDX bit 22.
bool has_amx_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && ((edx >> 22) & 1U) != 0;
}

const KernelTable& table(Isa isa) {
  LH_CHECK(isa <= best_isa(), "kernels", "this CPU has no {}, its best is {}",
           isa_name(isa), isa_name(best_isa()));
  if (isa == Isa::Avx2) return avx2_kernels();
  if (isa == Isa::Avx512) return avx512_kernels();
  return avx512bf16_kernels();
}

const TypedKernels<float>& typed(Isa isa, const float*) { return table(isa).f32; }
const TypedKernels<Bf16>& typed(Isa isa, const Bf16*) { return table(isa).bf16; }

void check(const AttentionShape& s) {
  LH_CHECK(attention_supported(s.head_dim), "attention",
           "head dim {}; the kernel takes multiples of 8 up to 256", s.head_dim);
  LH_CHECK(s.key_heads > 0 && s.query_heads % s.key_heads == 0, "attention",
           "{} query heads are no multiple of {} key heads", s.query_heads, s.key_heads);
  LH_CHECK(s.scale > 0.0F, "attention", "scale {}, must be positive", s.scale);
}

}  // namespace

Isa best_isa() {
  static const Isa kIsa = detect();
  return kIsa;
}

const char* isa_name(Isa isa) {
  if (isa == Isa::Avx2) return "AVX2";
  return isa == Isa::Avx512 ? "AVX-512" : "AVX-512 BF16";
}

std::string cpu_name() {
  // Leaf 0: the vendor in EBX, EDX, ECX; leaf 1: family and model in EAX.
  std::array<unsigned, 4> zero{};
  std::array<unsigned, 4> one{};
  __get_cpuid(0, &zero[0], &zero[1], &zero[2], &zero[3]);
  __get_cpuid(1, &one[0], &one[1], &one[2], &one[3]);
  const std::array<unsigned, 3> vendor = {zero[1], zero[3], zero[2]};
  const unsigned base_family = (one[0] >> 8) & 0xF;
  const unsigned family =
      base_family == 0xF ? base_family + ((one[0] >> 20) & 0xFF) : base_family;
  const unsigned model = ((one[0] >> 4) & 0xF) | ((one[0] >> 12) & 0xF0);
  return fmt::format(
      "{} family {} model {}{}",
      std::string_view(reinterpret_cast<const char*>(vendor.data()), sizeof vendor),
      family, model, has_amx_bf16() ? ", AMX" : "");
}

template <typename T>
void rms_norm_forward(const T* x, const T* residual, const T* weight, double eps,
                      int64_t rows, int64_t features, T* h, T* y, float* inverse_rms,
                      Isa isa) {
  LH_CHECK(residual == nullptr || h != nullptr, "rms_norm",
           "a residual needs a result h");
  typed(isa, x).rms_norm_forward(x, residual, weight, eps, rows, features, h, y,
                                 inverse_rms);
}

template <typename T>
void rms_norm_backward(const T* dy, const T* x, const float* inverse_rms, const T* weight,
                       const T* dresidual, int64_t rows, int64_t features, T* dx,
                       float* dweight, Isa isa) {
  typed(isa, x).rms_norm_backward(dy, x, inverse_rms, weight, dresidual, rows, features,
                                  dx, dweight);
}

template <typename T>
void rope(const T* x, int64_t x_token_stride, int64_t x_head_stride,
          const RopeShape& shape, const float* cos, const float* sin,
          const int32_t* position_ids, bool inverse, T* y, int64_t y_token_stride,
          int64_t y_head_stride, Isa isa) {
  LH_CHECK(shape.head_dim % 2 == 0, "rope", "head dim {} is odd", shape.head_dim);
  typed(isa, x).rope(x, x_token_stride, x_head_stride, shape, cos, sin, position_ids,
                     inverse, y, y_token_stride, y_head_stride);
}

template <typename T>
void swiglu_forward(const T* gate, const T* up, int64_t row_stride, int64_t rows,
                    int64_t features, T* y, Isa isa) {
  typed(isa, y).swiglu_forward(gate, up, row_stride, rows, features, y);
}

template <typename T>
void swiglu_backward(const T* dy, const T* gate, const T* up, int64_t row_stride,
                     int64_t rows, int64_t features, T* dgate, T* dup,
                     int64_t d_row_stride, Isa isa) {
  typed(isa, dy).swiglu_backward(dy, gate, up, row_stride, rows, features, dgate, dup,
                                 d_row_stride);
}

bool attention_supported(int64_t head_dim) {
  return head_dim >= 8 && head_dim <= 256 && head_dim % 8 == 0;
}

template <typename T>
void attention_forward(const AttentionShape& shape, const AttentionInput<T>& q,
                       const AttentionInput<T>& k, const AttentionInput<T>& v,
                       const AttentionOutput<T>& out, float* lse, Isa isa) {
  check(shape);
  typed(isa, q.data).attention_forward(shape, q, k, v, out, lse);
}

template <typename T>
void attention_backward(const AttentionShape& shape, const AttentionInput<T>& q,
                        const AttentionInput<T>& k, const AttentionInput<T>& v,
                        const AttentionInput<T>& out, const AttentionInput<T>& dout,
                        const float* lse, const AttentionOutput<T>& dq,
                        const AttentionOutput<T>& dk, const AttentionOutput<T>& dv,
                        Isa isa) {
  check(shape);
  typed(isa, q.data)
      .attention_backward(shape, q, k, v, out, dout, lse, dq, dk, dv,
                          omp_get_max_threads());
}

template <typename T>
void attention_forward_part(const AttentionShape& shape, const AttentionInput<T>& q,
                            const AttentionInput<T>& k, const AttentionInput<T>& v,
                            const AttentionOutput<float>& out, float* lse, Isa isa) {
  check(shape);
  typed(isa, q.data).attention_forward_part(shape, q, k, v, out, lse);
}

template <typename T>
void attention_backward_part(const AttentionShape& shape, const AttentionInput<T>& q,
                             const AttentionInput<T>& k, const AttentionInput<T>& v,
                             const AttentionInput<T>& out, const AttentionInput<T>& dout,
                             const float* lse, const AttentionOutput<float>& dq,
                             const AttentionOutput<float>& dk,
                             const AttentionOutput<float>& dv, Isa isa) {
  check(shape);
  typed(isa, q.data)
      .attention_backward_part(shape, q, k, v, out, dout, lse, dq, dk, dv,
                               omp_get_max_threads());
}

template <typename T>
void cross_entropy_statistics(const T* logits, const int64_t* targets, int64_t rows,
                              int64_t vocabulary, float* maximum, float* sum_exp,
                              float* picked, Isa isa) {
  typed(isa, logits)
      .cross_entropy_statistics(logits, targets, rows, vocabulary, maximum, sum_exp,
                                picked);
}

template <typename T>
void cross_entropy_gradient(T* logits, const int64_t* targets, int64_t rows,
                            int64_t vocabulary, const float* lse, const float* row_scale,
                            double z_loss, Isa isa) {
  typed(isa, logits)
      .cross_entropy_gradient(logits, targets, rows, vocabulary, lse, row_scale, z_loss);
}

template <typename T>
void cross_entropy(T* logits, const int64_t* targets, int64_t rows, int64_t vocabulary,
                   double scale, double z_loss, bool want_gradient, float* cross_entropy,
                   float* squared_lse, Isa isa) {
  typed(isa, logits)
      .cross_entropy(logits, targets, rows, vocabulary, scale, z_loss, want_gradient,
                     cross_entropy, squared_lse);
}

template <typename T>
void accumulate(float* sum, const T* x, int64_t count, Isa isa) {
  typed(isa, x).accumulate(sum, x, count);
}

void convert(const float* x, Bf16* y, int64_t count, Isa isa) {
  table(isa).narrow(x, y, count);
}

void convert(const Bf16* x, float* y, int64_t count, Isa isa) {
  table(isa).widen(x, y, count);
}

bool weight_gradient_available() {
  return best_isa() == Isa::Avx512Bf16 && !has_amx_bf16();
}

void accumulate_weight_gradient(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                                int64_t x_stride, int64_t T, int64_t N, int64_t K,
                                float* grad) {
  table(Isa::Avx512Bf16).weight_gradient(dy, dy_stride, x, x_stride, T, N, K, grad);
}

#define LH_INSTANTIATE(T)                                                                \
  template void rms_norm_forward(const T*, const T*, const T*, double, int64_t, int64_t, \
                                 T*, T*, float*, Isa);                                   \
  template void rms_norm_backward(const T*, const T*, const float*, const T*, const T*,  \
                                  int64_t, int64_t, T*, float*, Isa);                    \
  template void rope(const T*, int64_t, int64_t, const RopeShape&, const float*,         \
                     const float*, const int32_t*, bool, T*, int64_t, int64_t, Isa);     \
  template void swiglu_forward(const T*, const T*, int64_t, int64_t, int64_t, T*, Isa);  \
  template void swiglu_backward(const T*, const T*, const T*, int64_t, int64_t, int64_t, \
                                T*, T*, int64_t, Isa);                                   \
  template void attention_forward(const AttentionShape&, const AttentionInput<T>&,       \
                                  const AttentionInput<T>&, const AttentionInput<T>&,    \
                                  const AttentionOutput<T>&, float*, Isa);               \
  template void attention_backward(                                                      \
      const AttentionShape&, const AttentionInput<T>&, const AttentionInput<T>&,         \
      const AttentionInput<T>&, const AttentionInput<T>&, const AttentionInput<T>&,      \
      const float*, const AttentionOutput<T>&, const AttentionOutput<T>&,                \
      const AttentionOutput<T>&, Isa);                                                   \
  template void attention_forward_part(                                                  \
      const AttentionShape&, const AttentionInput<T>&, const AttentionInput<T>&,         \
      const AttentionInput<T>&, const AttentionOutput<float>&, float*, Isa);             \
  template void attention_backward_part(                                                 \
      const AttentionShape&, const AttentionInput<T>&, const AttentionInput<T>&,         \
      const AttentionInput<T>&, const AttentionInput<T>&, const AttentionInput<T>&,      \
      const float*, const AttentionOutput<float>&, const AttentionOutput<float>&,        \
      const AttentionOutput<float>&, Isa);                                               \
  template void cross_entropy_statistics(const T*, const int64_t*, int64_t, int64_t,     \
                                         float*, float*, float*, Isa);                   \
  template void cross_entropy_gradient(T*, const int64_t*, int64_t, int64_t,             \
                                       const float*, const float*, double, Isa);         \
  template void cross_entropy(T*, const int64_t*, int64_t, int64_t, double, double,      \
                              bool, float*, float*, Isa);                                \
  template void accumulate(float*, const T*, int64_t, Isa)

LH_INSTANTIATE(float);
LH_INSTANTIATE(Bf16);
#undef LH_INSTANTIATE

}  // namespace longhaul::kernels
