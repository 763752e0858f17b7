#include "longhaul/train/save/state_capture.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "longhaul/base/process.h"
#include "longhaul/device/device.h"
#include "longhaul/train/log/matmul_rate.h"
#include "longhaul/train/log/step_figures.h"
#include "longhaul/train/save/pinned_blocks.h"
#include "tests/support/checked_device.h"

namespace longhaul::train {
namespace {

using testing::kDevice, testing::make_device, testing::pinned_bytes, testing::waits;

/// The state of the second of two ranks, filled with 1, 2, 3 ... One matrix is frozen.
struct Owned {
  /// `layers` more matrices have a bucket each.
  explicit Owned(at::Device device, int layers = 0) {
    std::vector<tensor::FlatParameter> placed = {
        {tensor::make_parameter("embed", {100, 70}, {}), {1.0, 0.0, false}, 0},
        {tensor::make_parameter("a.norm", {16}, {}), {1.0, 0.0, false}, 1},
        {tensor::make_parameter("a.w", {300, 16}, {}), {1.0, 0.0, true}, 1}};
    for (int i = 0; i < layers; ++i) {
      const std::string name = "b" + std::to_string(i);
      placed.push_back(
          {tensor::make_parameter(name, {150, 70}, {}), {1.0, 0.0, false}, 2 + i});
    }
    flat = std::make_unique<tensor::FlatBuffers>(placed,
                                                 tensor::DTypePolicy{format::DType::BF16},
                                                 device, layout::FlatSharding{1, 2});
    optimizer = std::make_unique<optim::Optimizer>(*flat, OptimizerSection{});
    float first = 1.0F;
    for (const optim::BucketState& own : optimizer->states()) {
      for (const at::Tensor& t : {own.master, own.exp_avg, own.exp_avg_sq}) {
        if (!t.defined()) continue;
        t.copy_(at::arange(t.numel(), at::kFloat) + first);
        first += static_cast<float>(t.numel());
      }
    }
  }
  ModelState state() { return {*flat, *optimizer}; }
  std::unique_ptr<tensor::FlatBuffers> flat;
  std::unique_ptr<optim::Optimizer> optimizer;
};

void expect_same(const checkpoint::Snapshot& a, const checkpoint::Snapshot& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  ASSERT_FALSE(a.tensors.empty());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].kind, b.tensors[i].kind);
    EXPECT_EQ(format::describe_slice(a.tensors[i].slice),
              format::describe_slice(b.tensors[i].slice));
    EXPECT_TRUE(std::ranges::equal(a.tensors[i].bytes, b.tensors[i].bytes)) << i;
  }
}

TEST(StateCapture, OfADeviceIsThatOfACpuAndNobodyWaitsBeforeReady) {
  make_device();
  Owned here(at::kCPU), there(kDevice);
  const checkpoint::Snapshot live = StateCapture().capture(here.state());
  EXPECT_FALSE(live.owner);
  EXPECT_FALSE(live.ready);
  waits.take();
  const int64_t pinned_before = pinned_bytes;
  StateCapture capture;
  const c10::Stream beside =
      c10::impl::VirtualGuardImpl(kDevice.type()).getStreamFromGlobalPool(kDevice);
  const checkpoint::Snapshot captured = [&] {
    const c10::StreamGuard guard(beside);  // the copies on this stream are done late
    return capture.capture(there.state());
  }();
  EXPECT_TRUE(waits.take().empty());
  ASSERT_TRUE(captured.owner);
  EXPECT_GT(pinned_bytes, pinned_before);
  EXPECT_FALSE(std::ranges::equal(captured.tensors[0].bytes, live.tensors[0].bytes));
  captured.ready([] {});
  expect_same(captured, live);
}

TEST(StateCapture, CopiesBesideTheCurrentStreamAndAnUpdateComesBehindTheCopies) {
  make_device();
  Owned here(at::kCPU), there(kDevice);
  StateCapture capture;
  const checkpoint::Snapshot live = StateCapture().capture(here.state());
  const checkpoint::Snapshot captured = capture.capture(there.state());
  EXPECT_FALSE(std::ranges::equal(captured.tensors[0].bytes, live.tensors[0].bytes));
  capture.before_change();
  for (const optim::BucketState& own : there.optimizer->states()) own.master.fill_(-1.0);
  expect_same(captured, live);
}

TEST(StateCapture, IsSharedUntilTheStateChanges) {
  make_device();
  Owned there(kDevice);
  const int64_t none = pinned_bytes;
  StateCapture capture;
  const checkpoint::Snapshot first = capture.shared(there.state());
  const int64_t one = pinned_bytes - none;
  EXPECT_EQ(capture.shared(there.state()).owner, first.owner);
  EXPECT_EQ(pinned_bytes - none, one);
  capture.before_change();
  EXPECT_NE(capture.shared(there.state()).owner, first.owner);
}

TEST(StateCapture, HoldsLittleMorePinnedMemoryThanIsSaved) {
  make_device();
  Owned there(kDevice, 24);
  const int64_t none = pinned_bytes;
  StateCapture capture;
  const checkpoint::Snapshot captured = capture.capture(there.state());
  const auto saved = static_cast<double>(saved_bytes(there.state()));
  EXPECT_GT(saved, 1e6);
  int64_t written = 0;
  for (const checkpoint::StateTensor& t : captured.tensors)
    written += std::ssize(t.bytes);
  EXPECT_GE(pinned_bytes - none, written);
  EXPECT_LE(static_cast<double>(pinned_bytes - none), 1.1 * saved);
}

TEST(Packing, OfTheStateOfModelsTakesAtMostATenthMore) {
  // Masters and two moments in fp32 of a rank of 8: layers and two embeddings of Llama
  // 3.1 8B, and the buckets of a larger model.
  std::vector<uint64_t> small(3 * 32, 218'112'000 / 8 * 4), large(3 * 101, 268'435'456);
  small.insert(small.end(), 6, 525'336'576ULL / 8 * 4);
  for (const std::vector<uint64_t>& items : {small, large}) {
    const Packing packing = pack(items);
    uint64_t all = 0, taken = 0;
    for (const uint64_t item : items) all += item;
    for (const uint64_t block : packing.blocks) {
      EXPECT_TRUE(std::has_single_bit(block));
      taken += block;
    }
    EXPECT_LE(static_cast<double>(taken), 1.1 * static_cast<double>(all));
  }
}

TEST(Packing, KeepsItemsApart) {
  const std::vector<uint64_t> items = {5000, 0, 64, 700, 1, 4096, 700};
  const Packing packing = pack(items);
  std::vector<std::vector<int>> used;
  for (const uint64_t block : packing.blocks) used.emplace_back(block, 0);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& [block, offset] = packing.places[i];
    EXPECT_EQ(offset % 64, 0U);
    for (uint64_t at = offset; at < offset + items[i]; ++at) {
      EXPECT_EQ(used.at(block).at(at)++, 0);
    }
  }
}

TEST(StateCapture, UsesItsMemoryAgainWhenASaveHasEnded) {
  make_device();
  Owned there(kDevice);
  const int64_t none = pinned_bytes;
  StateCapture capture;
  capture.capture(there.state()).ready([] {});
  const int64_t one = pinned_bytes - none;
  EXPECT_GT(one, 0);
  {
    const checkpoint::Snapshot first = capture.capture(there.state());
    EXPECT_EQ(pinned_bytes - none, one);
    const checkpoint::Snapshot second = capture.capture(there.state());
    EXPECT_EQ(pinned_bytes - none, 2 * one);  // the first capture is still in use
    EXPECT_NE(first.tensors[0].bytes.data(), second.tensors[0].bytes.data());
  }
  capture.capture(there.state());
  EXPECT_EQ(pinned_bytes - none, 2 * one);
}

/// An allocator that has counted a peak.
struct Counted final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t) override { return {nullptr, kDevice}; }
  void copy_data(void*, const void*, size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].increase(700);
    stats.allocated_bytes[0].decrease(300);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

TEST(DeviceMemory, ThePeakIsTheDevicesAllocatorsWhereItCounts) {
  make_device();
  // The kernel counts a process's pages in portions, so two looks differ by some pages.
  EXPECT_NEAR(static_cast<double>(peak_bytes(at::kCPU)),
              static_cast<double>(peak_resident_bytes()), 4e6);
  EXPECT_EQ(device::peak_bytes(kDevice), 0);
  c10::Allocator* const before = c10::GetAllocator(kDevice.type());
  Counted counted;
  c10::SetAllocator(kDevice.type(), &counted, 1);
  EXPECT_EQ(peak_bytes(kDevice), 700);
  c10::SetAllocator(kDevice.type(), before, 1);
}

TEST(MatmulRate, OfADeviceIsMeasuredWithoutReadingAResult) {
  make_device();
  waits.take();
  EXPECT_GT(measure_matmul_rate(format::DType::F32, kDevice, Effort::Full).flops, 0.0);
  EXPECT_TRUE(waits.take().empty());
}

}  // namespace
}  // namespace longhaul::train
