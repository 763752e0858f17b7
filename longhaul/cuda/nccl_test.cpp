// These tests have the label gpu. They call NCCL with one rank: one GPU can hold no more.
#include "longhaul/cuda/nccl.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "longhaul/comm/backend.h"
#include "longhaul/comm/device_communicator.h"
#include "longhaul/comm/options.h"
#include "longhaul/device/cuda_library.h"
#include "longhaul/tensor/buffer_of.h"

extern "C" const longhaul::device::Kind* longhaul_cuda_kind();

namespace longhaul {
namespace {

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no CUDA device";
    comm::CommOptions limits;
    limits.deadline_seconds = 30.0;
    host_ = comm::self_world("world", limits);
    comm::DeviceOptions options;
    options.compute_stream = [] {
      return c10::impl::VirtualGuardImpl(at::kCUDA)
          .getStream(at::Device(at::kCUDA, 0))
          .native_handle();
    };
    group_ = std::make_unique<comm::DeviceCommunicator>(
        longhaul_cuda_kind()->collectives(), host_, 0, options);
  }

  static at::Tensor values(at::ScalarType type) {
    return at::arange(1000, at::TensorOptions(at::kLong).device(at::kCUDA))
        .remainder(97)
        .to(type);
  }

  std::shared_ptr<comm::Communicator> host_;
  std::unique_ptr<comm::DeviceCommunicator> group_;
};

TEST_F(Nccl, CollectivesOfOneRankGiveBackWhatTheyWereGiven) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
    const at::Tensor in = values(type);
    const at::Tensor summed = in.clone(), gathered = at::zeros_like(in),
                     scattered = at::zeros_like(in), exchanged = at::zeros_like(in);
    group_->all_reduce(tensor::buffer_of(summed), comm::ReduceOp::Sum)->order();
    group_->all_reduce(tensor::buffer_of(summed), comm::ReduceOp::Max)->order();
    group_->all_gather(tensor::buffer_of(in), tensor::buffer_of(gathered))->order();
    group_
        ->reduce_scatter(tensor::buffer_of(in), tensor::buffer_of(scattered),
                         comm::ReduceOp::Sum)
        ->order();
    group_->all_to_all(tensor::buffer_of(in), tensor::buffer_of(exchanged))->wait();
    group_->broadcast(tensor::buffer_of(summed), 0)->wait();
    EXPECT_TRUE(at::equal(summed, in)) << type;
    EXPECT_TRUE(at::equal(gathered, in)) << type;
    EXPECT_TRUE(at::equal(scattered, in)) << type;
    EXPECT_TRUE(at::equal(exchanged, in)) << type;
  }
}

TEST_F(Nccl, AResultIsOrderedBehindTheKernelsBeforeIt) {
  // The kernels before the all-gather take so long that a collective which did not wait
  // for them would read the old values.
  at::Tensor x = values(at::kFloat).repeat({20000});
  const at::Tensor out = at::zeros_like(x);
  for (int i = 0; i < 20; ++i) x = x * 1.0F + 1.0F;
  group_->all_gather(tensor::buffer_of(x), tensor::buffer_of(out))->order();
  const at::Tensor later = out + 1.0F;
  EXPECT_TRUE(at::equal(later.cpu(), values(at::kFloat).repeat({20000}).cpu() + 21.0F));
}

TEST_F(Nccl, APartOfAGroupHasItsOwnCommunicator) {
  const auto part = group_->split(0, 0, "part");
  const at::Tensor in = values(at::kFloat), sum = in.clone();
  part->all_reduce(tensor::buffer_of(sum), comm::ReduceOp::Sum)->wait();
  part->barrier()->wait();
  EXPECT_TRUE(at::equal(sum, in));
  EXPECT_NE(longhaul_cuda_kind()->identity(0), "");
}

}  // namespace
}  // namespace longhaul
