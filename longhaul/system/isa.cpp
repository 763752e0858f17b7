#include "longhaul/system/isa.h"

#include "longhaul/base/error.h"

namespace longhaul {
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

}  // namespace

Isa best_isa() {
  static const Isa kIsa = detect();
  return kIsa;
}

const char* isa_name(Isa isa) {
  if (isa == Isa::Avx2) return "AVX2";
  return isa == Isa::Avx512 ? "AVX-512" : "AVX-512 BF16";
}

}  // namespace longhaul
