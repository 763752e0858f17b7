#include "longhaul/ops/kernels/cpu.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <omp.h>

#include <array>
#include <exception>
#include <new>
#include <string_view>

#include "longhaul/base/error.h"

namespace longhaul::kernels {
namespace {

/// Returns whether there is AVX-NE-CONVERT, without which libraries have no bf16 products
/// on 256 bits.
bool has_avx_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0) return false;
  return ((edx >> 5) & 1U) != 0;
}

}  // namespace

void fail_of_memory() {
  try {
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    if (omp_get_level() > 0) std::terminate();
    throw;
  }
}

std::string cpu_name() {
  // Leaf 0 has the vendor in EBX, EDX, ECX; leaf 1 has family and model in EAX.
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
      family, model, system::cpu_has_amx() ? ", AMX" : "");
}

bool attention_supported(int64_t head_dim) {
  return head_dim >= 8 && head_dim <= 256 && head_dim % 8 == 0;
}

const KernelTable& kernels_of(system::Isa isa) {
  LH_CHECK(isa <= system::best_isa(), "kernels", "this CPU has no {}, its best is {}",
           system::isa_name(isa), system::isa_name(system::best_isa()));
  if (isa == system::Isa::Avx2) return avx2_kernels();
  if (isa == system::Isa::Avx512) return avx512_kernels();
  if (isa == system::Isa::Avx512Bf16) return avx512bf16_kernels();
  return amx_kernels();
}

void check_attention(const AttentionShape& s) {
  LH_CHECK(attention_supported(s.head_dim), "attention",
           "head dim {}; the kernel takes multiples of 8 up to 256", s.head_dim);
  LH_CHECK(s.key_heads > 0 && s.query_heads % s.key_heads == 0, "attention",
           "{} query heads are no multiple of {} key heads", s.query_heads, s.key_heads);
  LH_CHECK(s.scale > 0.0F, "attention", "scale {}, must be positive", s.scale);
  LH_CHECK(s.document_end == nullptr || s.window > s.keys, "attention",
           "a window of {} keys where queries see later keys", s.window);
}

void no_such_kernel(system::Isa isa) {
  throw Error(ErrorKind::Internal, "kernels",
              fmt::format("no such kernel for {}", system::isa_name(isa)));
}

void convert(const float* x, Bf16* y, int64_t count, system::Isa isa) {
  kernels_of(isa).narrow(x, y, count);
}

void convert(const Bf16* x, float* y, int64_t count, system::Isa isa) {
  kernels_of(isa).widen(x, y, count);
}

// The functions below look up CPUID once: CPUID is slow in a virtual machine, and every
// product calls these functions.

system::Isa product_isa() {
  static const system::Isa kIsa =
      system::best_isa() == system::Isa::Avx512Bf16 && __builtin_cpu_is("intel")
          ? system::Isa::Avx512
          : system::best_isa();
  return kIsa;
}

bool product_available() {
  static const bool kAvailable = product_isa() == system::Isa::Amx ||
                                 product_isa() == system::Isa::Avx512 ||
                                 (product_isa() == system::Isa::Avx2 && !has_avx_bf16());
  return kAvailable;
}

bool grouped_product_available() {
  return product_available() || product_isa() == system::Isa::Avx512Bf16;
}

bool weight_gradient_available() { return product_isa() == system::Isa::Avx512Bf16; }

void accumulate_weight_gradient(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                                int64_t x_stride, int64_t T, int64_t N, int64_t K,
                                float* grad) {
  kernels_of(system::Isa::Avx512Bf16)
      .weight_gradient(dy, dy_stride, x, x_stride, T, N, K, grad);
}

}  // namespace longhaul::kernels
