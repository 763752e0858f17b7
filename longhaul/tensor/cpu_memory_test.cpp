#include "longhaul/tensor/cpu_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace longhaul::tensor {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

at::Tensor block(int64_t bytes) { return at::empty({bytes}, at::kByte); }

/// Allocates and frees tensors as a step does. In the forward each layer keeps two
/// tensors and needs a large tensor in between; the backward frees the kept tensors and
/// needs others.
void step() {
  std::vector<at::Tensor> kept;
  for (int layer = 0; layer < 12; ++layer) {
    kept.push_back(block(3 * kMiB));
    const at::Tensor passing = block(16 * kMiB + layer * 4096);
    kept.push_back(block(5 * kMiB));
  }
  while (!kept.empty()) {
    const at::Tensor one = block(8 * kMiB), other = block(16 * kMiB);
    kept.pop_back();
    const at::Tensor last = block(3 * kMiB);
    kept.pop_back();
  }
}

class CpuMemory : public ::testing::Test {
 protected:
  void SetUp() override { tune_cpu_memory(); }
  void TearDown() override {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), /*priority=*/1);
  }
};

TEST_F(CpuMemory, IsAlignedToCacheLinesAndGoesBack) {
  for (const int64_t bytes :
       {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{1000}, kMiB}) {
    std::vector<at::Tensor> some;
    for (int i = 0; i < 5; ++i) {
      some.push_back(at::full({bytes}, 7 + i, at::kByte));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(some.back().data_ptr()) % 64, 0U) << bytes;
    }
    for (int i = 0; i < 5; ++i) EXPECT_EQ(some[i][bytes - 1].item<int>(), 7 + i);
  }
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 100; ++i) block(kMiB);
  EXPECT_LT(mallinfo2().uordblks, before + size_t{kMiB});
}

TEST_F(CpuMemory, TakesBackWhatAnOperatorKnowsByItsAddressAlone) {
  c10::Allocator* memory = c10::GetCPUAllocator();
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 100; ++i) {
    void* data = memory->raw_allocate(size_t{kMiB} + 1);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
    std::memset(data, 1, size_t{kMiB} + 1);
    memory->raw_deallocate(data);
  }
  memory->raw_deallocate(memory->raw_allocate(0));
  EXPECT_LT(mallinfo2().uordblks, before + size_t{kMiB});
}

TEST_F(CpuMemory, HasTensorsOfNothing) {
  EXPECT_EQ(block(0).numel(), 0);
  EXPECT_EQ(at::full({2, 0, 3}, 1.0F).numel(), 0);
}

TEST_F(CpuMemory, OfAStepIsFoundAgainByTheNext) {
  constexpr int64_t kLive = 12 * (3 + 5) * kMiB + (8 + 16 + 3) * kMiB;
  const auto before = static_cast<int64_t>(mallinfo2().arena);
  for (int i = 0; i < 20; ++i) step();
  const int64_t grown = static_cast<int64_t>(mallinfo2().arena) - before;
  // tune_malloc() lets the heap grow by 64 MiB more than is needed, so that up to 64 MiB
  // of the growth are free memory.
  EXPECT_LT(grown, kLive + kLive / 4 + 64 * kMiB);
}

}  // namespace
}  // namespace longhaul::tensor
