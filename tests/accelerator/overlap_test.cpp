#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "longhaul/base/process.h"
#include "longhaul/device/device.h"
#include "longhaul/families/model_config.h"
#include "longhaul/layout/rank_costs.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/parallel/tensor/region.h"
#include "longhaul/session/layout.h"
#include "longhaul/tensor/buffer_of.h"
#include "tests/accelerator/loaded.h"
#include "tests/accelerator/ranks.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/settings.h"

// Checks what runs beside what on the device's streams, and over which communicators.

namespace longhaul::softdev_test {
namespace {

/// Returns what was put into the streams of a device, as "STREAM: WHAT", in order.
std::vector<std::string> timeline_of(const fs::path& file, int of_device) {
  const std::string ending = fmt::format(" of device {}", of_device);
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string process, stream, what; std::getline(in, process, '\t') &&
                                          std::getline(in, stream, '\t') &&
                                          std::getline(in, what);) {
    if (stream.ends_with(ending)) lines.push_back(stream + ": " + what);
  }
  return lines;
}

/// Returns the place of the first line behind `from` that begins so, or the end.
size_t find_line(const std::vector<std::string>& lines, size_t from,
                 const std::string& begins) {
  const auto at = std::find_if(
      lines.begin() + static_cast<std::ptrdiff_t>(std::min(from, lines.size())),
      lines.end(), [&](const std::string& line) { return line.starts_with(begins); });
  return static_cast<size_t>(at - lines.begin());
}

TEST(TensorParallel, AWeightGradientRunsBesideTheSumOfTheInputsGradient) {
  const TestDirectory dir;
  const fs::path file = dir / "timeline";
  constexpr int64_t kRows = 8, kInner = 16;
  run_ranks(2, [&](comm::DeviceCommunicator& tp) {
    const at::Device here = device(tp.rank());
    const device::BackwardHere on_this_thread;
    const auto weight = tensor::make_parameter("w", {4, kInner}, {});
    weight->set_frozen(false);
    weight->bind(at::ones({4, kInner}, here), at::zeros({4, kInner}, here));
    const parallel::TensorRegion region(tp, false);
    const auto queue = std::make_shared<ops::WeightGradients>();
    at::Tensor x = at::ones({kRows, kInner}, here).set_requires_grad(true);
    const at::Tensor y = ops::linear(region.enter(x), weight, queue);
    tp.barrier_wait();
    if (tp.rank() == 0) ::setenv("SOFTDEV_TIMELINE", file.c_str(), 1);
    tp.barrier_wait();
    torch::autograd::backward({y}, {at::ones({kRows, 4}, here)});
    tp.barrier_wait();
    if (tp.rank() == 0) ::unsetenv("SOFTDEV_TIMELINE");
    EXPECT_TRUE(x.grad().cpu().eq(2.0 * 4.0).all().item<bool>());
    EXPECT_TRUE(weight->grad().cpu().eq(1.0 * kRows).all().item<bool>());
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<std::string> lines = timeline_of(file, rank);
    const std::string current = fmt::format("stream 0 of device {}: ", rank);
    const auto sum = static_cast<size_t>(
        std::ranges::find_if(lines,
                             [](const std::string& line) {
                               return line.find(": all_reduce") != line.npos;
                             }) -
        lines.begin());
    ASSERT_LT(sum, lines.size());
    const std::string beside = lines[sum].substr(0, lines[sum].find(':'));
    const size_t gradient = find_line(lines, sum, current + "aten::addmm");
    const size_t ordered = find_line(lines, sum, current + "waits for " + beside);
    EXPECT_LT(gradient, ordered) << fmt::format("{}", fmt::join(lines, "\n"));
    EXPECT_LT(ordered, lines.size());
  }
}

/// Runs an operation of a group of devices, and waits for it.
void run_once(comm::Verb verb, comm::Communicator& group, at::Device here) {
  using comm::Transfer;
  const int ranks = group.size(), rank = group.rank();
  const at::Tensor one = at::zeros({8}, here), all = at::zeros({8 * ranks}, here);
  const at::Tensor other = at::zeros_like(all);
  const comm::Buffer part = tensor::buffer_of(one), whole = tensor::buffer_of(all);
  const auto start = [&] {
    switch (verb) {
      case comm::Verb::AllReduce:
        return group.all_reduce(whole, comm::ReduceOp::Sum);
      case comm::Verb::AllGather:
        return group.all_gather(part, whole);
      case comm::Verb::ReduceScatter:
        return group.reduce_scatter(whole, part, comm::ReduceOp::Sum);
      case comm::Verb::Broadcast:
        return group.broadcast(whole, 0);
      case comm::Verb::AllToAll:
        return group.all_to_all(whole, tensor::buffer_of(other));
      default:
        return group.send_recv({{Transfer::Kind::Send, (rank + 1) % ranks, whole},
                                {Transfer::Kind::Recv, (rank + ranks - 1) % ranks,
                                 tensor::buffer_of(other)}});
    }
  };
  start()->wait();
}

/// Returns how many communicators of the library each rank of a layout opens. Also runs
/// each operation of a step once over its group.
int64_t communicators_of(const std::vector<std::string>& sets, const char* model_name,
                         int ranks, int ranks_of_node) {
  const RunConfig config = accepted("", sets).config;
  const fs::path file = fmt::format("tests/fixtures/configs/{}.json", model_name);
  const ModelDescription model = load_model_config(source_dir() / file).description;
  const layout::LayoutDescription description = layout::describe_layout(
      config, model, ranks, layout::Placement::even(ranks_of_node));
  const layout::LayoutCosts costs(config, model, description);
  const int64_t before = counted("communicators");
  comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
    // Streams of the first devices stand still since the tests of deadlocks.
    const at::Device here = device(32 + world->rank());
    c10::impl::VirtualGuardImpl(here.type()).setDevice(here);
    const session::Layout layout(description, config, here, world);
    for (const layout::TrafficLine& line : costs.of(world->rank()).traffic.lines()) {
      run_once(line.verb, *layout.tensor_group(line.group), here);
    }
    world->barrier_wait();
  });
  return (counted("communicators") - before) / ranks;
}

TEST(Communicators, ARankOpensThoseThatAStepUses) {
  // The groups are those of tp, of pp, of the shards of a node and of their replicas.
  EXPECT_EQ(communicators_of({"parallel.tp=2", "parallel.pp=2", "parallel.zero=1",
                              "parallel.shard_group=\"node\""},
                             "llama3-70b", 16, 4),
            4);
  // Data has one, and ep one for collectives and one for transfers.
  EXPECT_EQ(communicators_of({"parallel.ep=8"}, "mixtral-8x7b", 8, 8), 3);
}

}  // namespace
}  // namespace longhaul::softdev_test
