#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>

// The threads of a block run one after another on one thread of the host. A thread runs
// until it waits for other threads, and a warp until it waits for other warps. So code of
// a thread without a wait never overlaps with other threads. set_order() chooses which
// threads run first. A kernel whose results depend on this order has a race.

namespace longhaul::cuda_host {

inline constexpr unsigned kWarpSize = 32;
inline constexpr unsigned kMostThreads = 1024;

/// The order in which the blocks of a grid and the threads of a block take turns.
enum class Order { Ascending, Descending, Interleaved };
void set_order(Order order);

/// Runs `thread` once for every thread of a grid of one dim. Throws Error (Internal) if
/// not all threads of a block reach a barrier, if the lanes of a shuffle do not reach it,
/// or if an access is not aligned. Threads of a block that failed are not run to their
/// end.
void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& thread);

/// Waits until all threads of the block wait here.
void wait_for_block(std::source_location at);

/// Returns the value `mine` of another lane of the warp, once all lanes of `mask` have
/// called this.
uint64_t exchange(unsigned mask, uint64_t mine, unsigned lane, std::source_location at);

/// Returns the number of this thread in its warp.
unsigned own_lane();

/// Fails the launch unless `address` is a multiple of `bytes`.
void check_aligned(const volatile void* address, unsigned bytes);

template <typename T>
T exchange_as(unsigned mask, T mine, unsigned lane, std::source_location at) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &mine, sizeof(T));
  bits = exchange(mask, bits, lane, at);
  std::memcpy(&mine, &bits, sizeof(T));
  return mine;
}

}  // namespace longhaul::cuda_host
