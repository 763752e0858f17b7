#pragma once

#include "longhaul/cuda/kernels/device.cuh"

// This header stands in for the kernels' own header of this name, whose instructions only
// a GPU has. The threads of a warp show each other what they have. Sums are fp32, one
// term after another, which a GPU need not do.

namespace longhaul::kernels::cuda {

/// What a thread shows its warp.
struct ShownToWarp {
  const Bf16* row;
  unsigned words[4], b[2];
};
inline ShownToWarp shown_to_warp[cuda_host::kMostThreads];

/// Waits for the warp: what its threads showed before may be read, or replaced.
inline void wait_for_warp(std::source_location at) {
  cuda_host::exchange(0xffffffffU, 0, cuda_host::own_lane(), at);
}

/// Returns element `which` of two in a word.
inline float element_of(unsigned word, int which) {
  return to_float(Bf16{static_cast<uint16_t>(which == 0 ? word : word >> 16)});
}

inline void load_transposed(unsigned (&words)[4], const Bf16* row,
                            std::source_location at = std::source_location::current()) {
  cuda_host::check_aligned(row, 16);
  const unsigned lane = cuda_host::own_lane(), first = threadIdx.x - lane;
  shown_to_warp[threadIdx.x].row = row;
  wait_for_warp(at);
  for (unsigned q = 0; q < 4; ++q) {
    const ShownToWarp* rows = shown_to_warp + first + 8 * q + lane % 4 * 2;
    const unsigned lower = rows[0].row[lane / 4].bits, upper = rows[1].row[lane / 4].bits;
    words[q] = lower | upper << 16;
  }
  wait_for_warp(at);
}

inline void add_product(float (&sums)[4], const unsigned (&a)[4], unsigned b0,
                        unsigned b1,
                        std::source_location at = std::source_location::current()) {
  const unsigned lane = cuda_host::own_lane(), first = threadIdx.x - lane;
  ShownToWarp& own = shown_to_warp[threadIdx.x];
  std::copy(a, a + 4, own.words);
  own.b[0] = b0;
  own.b[1] = b1;
  wait_for_warp(at);
  for (int s = 0; s < 4; ++s) {
    const ShownToWarp* row = shown_to_warp + first + lane / 4 * 4;
    const ShownToWarp* column = shown_to_warp + first + (lane % 4 * 2 + s % 2) * 4;
    for (int k = 0; k < 16; ++k) {
      const int in_square = k % 8;
      sums[s] += element_of(row[in_square / 2].words[k / 8 * 2 + s / 2], in_square % 2) *
                 element_of(column[in_square / 2].b[k / 8], in_square % 2);
    }
  }
  wait_for_warp(at);
}

}  // namespace longhaul::kernels::cuda
