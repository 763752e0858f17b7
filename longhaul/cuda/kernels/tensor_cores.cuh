#pragma once

#include "longhaul/cuda/kernels/device.cuh"

// The instructions of tensor cores for bf16, from sm_80 on. Where tests compile kernels
// for the host, tests/cuda_host/instead has another file in the place of this one.
//
// A warp holds a matrix of 16 x 16 as four squares of 8 x 8. Each thread has four words,
// one of each square. Thread 4 i + j has elements (i, 2 j) and (i, 2 j + 1) of each
// square.

namespace longhaul::kernels::cuda {

/// Loads four squares from shared memory and transposes each. Thread 8 q + i has the
/// address of row i of square q as it lies in memory, a multiple of 16 bytes.
__device__ inline void load_transposed(unsigned (&words)[4], const Bf16* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

/// Adds a b to sums [16, 8], for a [16, 16] and b [16, 8]. The words of a are its squares
/// at (0, 0), (8, 0), (0, 8), (8, 8). The words of b are transposed squares, those at (0,
/// 0) and (8, 0). Thread 4 i + j has sums (i, 2 j), (i, 2 j + 1), (i + 8, 2 j) and (i +
/// 8, 2 j + 1).
__device__ inline void add_product(float (&sums)[4], const unsigned (&a)[4], unsigned b0,
                                   unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace longhaul::kernels::cuda
