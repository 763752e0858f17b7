#include "longhaul/rehearsal/device.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/device/device.h"
#include "longhaul/rehearsal/memory.h"

namespace longhaul::rehearsal {
namespace {

/// A rank's memory on the fake device, which lacks one operation.
class FakeDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EXPECT_THROW(install_device({"aten::cumsam"}), InputError);
    install_device({"aten::cumsum"});
  }
  static at::TensorOptions options(at::ScalarType type = at::kFloat) {
    return at::TensorOptions(at::Device(at::kPrivateUse1, 0)).dtype(type);
  }

  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  PlayedMemory played_{memory_};
};

TEST_F(FakeDevice, ATensorOf100GigabytesTakesNoMemory) {
  const int64_t before = resident_bytes();
  const at::Tensor x = at::zeros({25, 1'000'000'000}, options());
  const at::Tensor y = (x + 1.0).mul_(x).t().contiguous();
  EXPECT_EQ(y.sizes(), at::IntArrayRef({1'000'000'000, 25}));
  EXPECT_GE(memory_->peak(), 3 * x.nbytes());
  EXPECT_LT(resident_bytes() - before, int64_t{64} << 20);
}

TEST_F(FakeDevice, FreedBlocksAreCountedAndUsedAgain) {
  const at::Device device = options().device();
  const void* first = nullptr;
  {
    const at::Tensor x = at::empty({1000}, options());
    first = x.const_data_ptr();
    EXPECT_EQ(device::used_bytes(device), 4096);  // 4000 rounded to 512
  }
  EXPECT_EQ(device::used_bytes(device), 0);
  const at::Tensor y = at::empty({1024}, options());
  EXPECT_EQ(y.const_data_ptr(), first);
  const at::Tensor z = at::empty({100'000}, options());
  EXPECT_NE(z.const_data_ptr(), first);
  EXPECT_EQ(device::peak_bytes(device), 4096 + 425'984);  // 400,000 to 32 KiB
}

TEST_F(FakeDevice, ShapesAreThoseOfTheCpu) {
  const auto shapes = [](const at::TensorOptions& to) {
    const at::Tensor x = at::zeros({4, 6}, to), w = at::zeros({8, 6}, to);
    const at::Tensor y = at::linear(x, w);
    std::vector<std::vector<int64_t>> all;
    for (const at::Tensor& t :
         {y, at::softmax(y, -1), std::get<0>(at::topk(y, 3, -1)),
          y.narrow(1, 2, 4).sum(0), at::where(y > 0, y, y.sum(0)), at::cat({x, w}),
          x.t().reshape({-1}), y.index_select(0, at::zeros({7}, to.dtype(at::kLong))),
          y.to(at::kBFloat16).to(at::kFloat), at::logsumexp(y, -1)}) {
      all.push_back(t.sizes().vec());
    }
    return all;
  };
  EXPECT_EQ(shapes(options()), shapes(at::TensorOptions(at::kFloat)));
}

TEST_F(FakeDevice, GradientsComeWithTheirShapes) {
  const device::BackwardHere here;
  const at::Tensor x = at::zeros({4, 6}, options()).requires_grad_();
  const at::Tensor w = at::zeros({8, 6}, options()).requires_grad_();
  at::silu(at::linear(x, w)).sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(w.grad().sizes(), w.sizes());
}

TEST_F(FakeDevice, OperandsThatDoNotFitAreRefused) {
  const at::Tensor x = at::zeros({4, 6}, options());
  EXPECT_THROW(at::mm(x, x), c10::Error);
  EXPECT_THROW(x + at::zeros({4, 6}), c10::Error);
}

TEST_F(FakeDevice, AMissingOperationIsNamed) {
  const at::Tensor x = at::zeros({4}, options());
  try {
    at::cumsum(x, 0);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("the device lacks aten::cumsum"),
              std::string::npos);
  }
}

TEST_F(FakeDevice, TheHostReadsZerosAndTheCountsThatItIsGiven) {
  const at::Tensor x = at::empty({3}, options(at::kLong));
  EXPECT_EQ(x.cpu().sum().item<int64_t>(), 0);
  int waits = 0;
  set_host(
      [](void* numbers, int64_t count, bool wide) {
        ASSERT_TRUE(wide);
        for (int64_t i = 0; i < count; ++i) static_cast<int64_t*>(numbers)[i] = 7;
      },
      [&] { ++waits; });
  EXPECT_EQ(x.cpu().sum().item<int64_t>(), 21);
  EXPECT_EQ(waits, 1);
  set_host({}, {});
}

}  // namespace
}  // namespace longhaul::rehearsal
