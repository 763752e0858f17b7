#include "longhaul/system/isa.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "longhaul/base/error.h"

namespace longhaul::system {
namespace {

/// Asks Linux, once for the whole process, for permission to use tiles, the registers of
/// AMX: without permission the first use of a tile ends the process. LibTorch asks for
/// the permission as well, which does no harm.
bool linux_grants_tiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Multiplies one block of small integers, whose sums are exact in every order. So a
/// machine whose tiles are broken, or an emulator with wrong tiles, is found before the
/// first step.
__attribute__((target("amx-tile,amx-bf16"))) bool tiles_multiply() {
  constexpr int kRows = 16;
  constexpr int kPairs = 16;
  struct Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64};
    uint8_t rows[16] = {kRows, kRows, kRows};
  };
  alignas(64) static constexpr Configuration kConfiguration;
  alignas(64) uint16_t left[kRows][kPairs][2];
  alignas(64) uint16_t right[kPairs][kRows][2];
  alignas(64) float sums[kRows][kRows];
  const auto left_value = [](int m, int k) { return (m * 7 + k * 3) % 15 - 7; };
  const auto right_value = [](int k, int n) { return (k * 5 + n * 11) % 13 - 6; };
  const auto bf16 = [](int value) {
    return static_cast<uint16_t>(
        __builtin_bit_cast(uint32_t, static_cast<float>(value)) >> 16);
  };
  for (int i = 0; i < kRows; ++i) {
    for (int k = 0; k < 2 * kPairs; ++k) {
      left[i][k / 2][k % 2] = bf16(left_value(i, k));
      right[k / 2][i][k % 2] = bf16(right_value(k, i));
    }
  }
  // The intrinsics do not tell the compiler that they read memory.
  __asm__ volatile("" ::: "memory");
  _tile_loadconfig(&kConfiguration);
  _tile_zero(0);
  _tile_loadd(1, left, sizeof left[0]);
  _tile_loadd(2, right, sizeof right[0]);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, sums, sizeof sums[0]);
  _tile_release();
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kRows; ++n) {
      int want = 0;
      for (int k = 0; k < 2 * kPairs; ++k) want += left_value(m, k) * right_value(k, n);
      if (sums[m][n] != static_cast<float>(want)) return false;
    }
  }
  return true;
}

struct Found {
  Isa isa;
  const char* amx_refusal = nullptr;
};

Found detect() {
  __builtin_cpu_init();
  LH_CHECK(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), "kernels",
           "this CPU has no AVX2 and FMA (x86-64-v3), which longhaul needs");
  const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return {Isa::Avx2};
  if (!__builtin_cpu_supports("avx512bf16")) return {Isa::Avx512};
  if (!cpu_has_amx()) return {Isa::Avx512Bf16};
  if (!linux_grants_tiles()) {
    return {Isa::Avx512Bf16,
            "the operating system does not grant its tiles: Linux 5.16 or newer does, "
            "where no container's seccomp filter refuses arch_prctl"};
  }
  if (!tiles_multiply()) {
    return {Isa::Avx512Bf16,
            "a product of known numbers came out wrong: take the machine out of service"};
  }
  return {Isa::Amx};
}

const Found& found() {
  static const Found kFound = detect();
  return kFound;
}

}  // namespace

Isa best_isa() { return found().isa; }

const char* isa_name(Isa isa) {
  constexpr const char* kNames[] = {"AVX2", "AVX-512", "AVX-512 BF16", "AMX"};
  return kNames[static_cast<size_t>(isa)];
}

bool cpu_has_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBf16AndTiles = 1U << 22 | 1U << 24;
  return (edx & kBf16AndTiles) == kBf16AndTiles;
}

const char* amx_refusal() { return found().amx_refusal; }

int64_t second_cache_bytes() {
  static const int64_t kBytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return kBytes > 0 ? kBytes : int64_t{2} << 20;
}

}  // namespace longhaul::system
