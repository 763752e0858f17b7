#include "tests/cuda_host/fibers.h"

#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/cuda_host/guarded.h"

// These tests check that the stand-in for a GPU finds the mistakes that fail on a GPU.

namespace longhaul::cuda_host {
namespace {

/// Returns the message of the launch's error, or an empty string.
std::string failure_of(unsigned blocks, unsigned threads,
                       const std::function<void()>& thread) {
  try {
    run_grid(blocks, threads, thread);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Fibers, RunEveryThreadOfEveryBlockOnce) {
  std::vector<int> seen(5 * 77);
  run_grid(5, 77, [&] {
    EXPECT_EQ(gridDim.x, 5U);
    ++seen[blockIdx.x * blockDim.x + threadIdx.x];
  });
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 5 * 77);
  EXPECT_EQ(*std::max_element(seen.begin(), seen.end()), 1);
}

TEST(Fibers, WaitAtBarriersForWhatOthersWrote) {
  for (const Order order : {Order::Ascending, Order::Descending, Order::Interleaved}) {
    set_order(order);
    std::vector<unsigned> shared(100), read(100);
    run_grid(1, 100, [&] {
      const unsigned own = threadIdx.x;
      shared[own] = own * own;
      __syncthreads();
      read[own] = shared[(own + 37) % 100];
      EXPECT_EQ(threadIdx.x, own);
    });
    for (unsigned i = 0; i < 100; ++i) {
      EXPECT_EQ(read[i], (i + 37) % 100 * ((i + 37) % 100));
    }
  }
  set_order(Order::Ascending);
}

TEST(Fibers, ShufflesReadTheLaneThatIsNamed) {
  run_grid(2, 64, [] {
    const int own = static_cast<int>(threadIdx.x);
    const int lane = own % 32;
    EXPECT_EQ(__shfl_xor_sync(0xffffffffU, own, 5), own - lane + (lane ^ 5));
    EXPECT_EQ(__shfl_sync(0xffffffffU, 1.5 * own, 7), 1.5 * (own - lane + 7));
    EXPECT_EQ(__shfl_sync(0xffffffffU, own, 3, 8), own / 8 * 8 + 3);
    EXPECT_EQ(__shfl_down_sync(0xffffffffU, own, 4U), lane < 28 ? own + 4 : own);
    EXPECT_EQ(__shfl_up_sync(0xffffffffU, own, 4U), lane >= 4 ? own - 4 : own);
  });
  int sum = 0;
  run_grid(3, 40, [&] { atomicAdd(&sum, 1); });
  EXPECT_EQ(sum, 120);
}

TEST(Fibers, ReportABarrierThatNotAllReach) {
  const auto ended = failure_of(2, 64, [] {
    if (threadIdx.x == 3) return;
    __syncthreads();
  });
  EXPECT_NE(ended.find("a barrier in divergent code, block 0: thread 0 waits at "),
            std::string::npos)
      << ended;
  EXPECT_NE(ended.find("fibers_test.cpp"), std::string::npos) << ended;
  EXPECT_NE(ended.find("thread 3 has ended"), std::string::npos) << ended;
  const auto apart = failure_of(1, 64, [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  EXPECT_NE(apart.find("a barrier in divergent code"), std::string::npos) << apart;
  EXPECT_NE(apart.find("thread 32 waits at"), std::string::npos) << apart;
  EXPECT_EQ(failure_of(1, 64, [] { __syncthreads(); }), "");
}

TEST(Fibers, ReportAShuffleThatItsLanesDoNotReach) {
  const auto ended = failure_of(1, 32, [] {
    if (threadIdx.x == 9) return;
    __shfl_xor_sync(0xffffffffU, 1, 1);
  });
  EXPECT_NE(ended.find("a shuffle in divergent code"), std::string::npos) << ended;
  EXPECT_NE(ended.find("thread 9 has ended"), std::string::npos) << ended;
  const auto few = failure_of(1, 40, [] { __shfl_xor_sync(0xffffffffU, 1, 1); });
  EXPECT_NE(few.find("a shuffle in divergent code"), std::string::npos) << few;
  const auto outside = failure_of(1, 32, [] { __shfl_xor_sync(0xfffffffeU, 1, 1); });
  EXPECT_NE(outside.find("not in the mask"), std::string::npos) << outside;
  EXPECT_EQ(
      failure_of(1, 40, [] { __shfl_xor_sync(threadIdx.x < 32 ? ~0U : 0xffU, 1, 1); }),
      "");
}

// Without the attribute a sanitizer would report the access first.
__attribute__((no_sanitize("alignment"))) void store_wide(unsigned* to,
                                                          const uint4& value) {
  *reinterpret_cast<uint4*>(to) = value;
}
__attribute__((no_sanitize("alignment"))) uint4 load_wide(unsigned* from) {
  return *reinterpret_cast<uint4*>(from);
}

TEST(Fibers, ReportWideAccessesThatAreNotAligned) {
  alignas(16) unsigned words[8] = {};
  uint4 value(1, 2, 3, 4);
  const auto store = [&](unsigned* to) {
    return failure_of(1, 1, [&] { store_wide(to, value); });
  };
  EXPECT_EQ(store(words + 4), "");
  EXPECT_EQ(words[6], 3U);
  EXPECT_NE(store(words + 1).find("an access of 16 bytes"), std::string::npos);
  EXPECT_NE(failure_of(1, 1, [&] { value = load_wide(words + 2); })
                .find("an access of 16 bytes"),
            std::string::npos);
  EXPECT_EQ(words[1], 0U) << "the access was made all the same";
}

TEST(Fibers, OrdersOfThreadsShowARace) {
  std::vector<std::vector<int>> found;
  for (const Order order : {Order::Ascending, Order::Descending, Order::Interleaved}) {
    set_order(order);
    std::vector<int> cells(64), read(64);
    run_grid(1, 64, [&] {
      cells[threadIdx.x] = 1;  // no barrier after it
      read[threadIdx.x] = cells[(threadIdx.x + 1) % 64];
    });
    found.push_back(read);
  }
  set_order(Order::Ascending);
  EXPECT_NE(found[0], found[1]);
  EXPECT_NE(found[0], found[2]);
}

TEST(Fibers, AWarpIsAheadOfThoseThatItDoesNotWaitFor) {
  // The second value is written before slower warps have read the first.
  int cell = 0;
  std::vector<int> read(64);
  run_grid(1, 64, [&] {
    if (threadIdx.x == 0) cell = 1;
    __syncthreads();
    read[threadIdx.x] = cell;
    __shfl_xor_sync(0xffffffffU, 1, 1);
    if (threadIdx.x == 0) cell = 2;
  });
  EXPECT_EQ(read[31], 1);
  EXPECT_EQ(read[32], 2);
}

TEST(GuardedDeathTest, FindsWhatTouchesMemoryBesideABuffer) {
  const std::vector<float> values(100, 1.0F);
  const auto touch = [&](Edge edge, int64_t at) {
    report_crossings();
    Guarded<float> buffer(values, edge);
    run_grid(7, 40, [&] {
      if (blockIdx.x == 6 && threadIdx.x == 33) buffer.data()[at] += 1.0F;
    });
  };
  EXPECT_EXIT(touch(Edge::End, 100), ::testing::ExitedWithCode(70),
              "memory outside of the buffers: block 6, thread 33");
  EXPECT_EXIT(touch(Edge::Begin, -1), ::testing::ExitedWithCode(70),
              "block 6, thread 33");
  for (const Edge edge : kEdges) {
    Guarded<float> buffer(values, edge);
    EXPECT_EQ(buffer.values(), values);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 16,
              edge == Edge::Shifted ? 4U : 0U);
  }
}

TEST(Bf16OnTheHost, RoundsAsTheGpuDoes) {
  const auto bits = [](float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); };
  EXPECT_EQ(bits(1.0F), 0x3F80);
  EXPECT_EQ(bits(std::bit_cast<float>(0x3F808000U)), 0x3F80);  // ties to even
  EXPECT_EQ(bits(std::bit_cast<float>(0x3F818000U)), 0x3F82);
  EXPECT_EQ(bits(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(bits(3.4e38F), 0x7F80);
  EXPECT_EQ(bits(-HUGE_VALF), 0xFF80);
  EXPECT_EQ(bits(std::nanf("")), 0x7FFF);
  EXPECT_EQ(__bfloat162float(__ushort_as_bfloat16(0xC000)), -2.0F);
}

}  // namespace
}  // namespace longhaul::cuda_host
