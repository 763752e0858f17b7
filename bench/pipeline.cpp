// Measures bubbles of the pipeline schedules with stages that sleep and do not compute,
// so that four stages need no four cores. A rank's forward takes one unit, its backward
// two, of which weight gradients are one; with v stages per rank each takes 1/v of that.
//   bench_pipeline [unit in ms [steps]]          4 ranks as threads of one process
//   mpirun -n P bench_pipeline [unit [steps]]    P ranks
// Prints one JSON object a line. A step's time is from a barrier to its end on the
// slowest rank, and the median over the steps counts. The bubble is the time beyond the
// work of a rank.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/comm/backend.h"
#include "longhaul/parallel/pipeline/runner.h"
#include "longhaul/tensor/vector_math.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/simulate_pipeline.h"

namespace {

using namespace longhaul;
using Clock = std::chrono::steady_clock;

class SleepingStage : public parallel::PipelineStage {
 public:
  /// Times in seconds.
  SleepingStage(const layout::PipelinePlan& plan, int rank, const PipelineTimes& times)
      : plan_(plan), rank_(rank), times_(times), tensor_(at::zeros({256, 1024})) {}

  parallel::Shapes boundary_shapes(int64_t) override { return {{256, 1024}}; }
  nn::Tensors forward(int64_t c, int64_t, const nn::Tensors&) override {
    sleep(times_.forward);
    const bool last = plan_.global_stage(rank_, c) + 1 == plan_.global_stages();
    return last ? nn::Tensors() : nn::Tensors{tensor_};
  }
  nn::Tensors backward(int64_t c, int64_t, const nn::Tensors&) override {
    sleep(times_.backward);
    return plan_.global_stage(rank_, c) == 0 ? nn::Tensors() : nn::Tensors{tensor_};
  }
  void weight_gradients(int64_t, int64_t) override { sleep(times_.weight_gradients); }

  /// Returns the seconds that actions have taken since the last call.
  double take_busy() { return std::exchange(busy_, 0.0); }

 private:
  /// Sleeps overshoot by up to a millisecond: the last two are polled, and what was
  /// really spent counts as work.
  void sleep(double seconds) {
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(seconds));
    std::this_thread::sleep_until(end - std::chrono::milliseconds(2));
    while (Clock::now() < end) std::this_thread::yield();
    busy_ += std::chrono::duration<double>(Clock::now() - begin).count();
  }

  const layout::PipelinePlan& plan_;
  int rank_;
  PipelineTimes times_;
  at::Tensor tensor_;
  double busy_ = 0.0;
};

struct Case {
  const char* name;
  PipelineKind kind;
  int chunks;
  bool split;  ///< weight gradients after the gradient was sent
  /// The schedule's bubble in units, for p - 1 = 1.
  double formula;
};

/// Bubbles of Narayanan et al., arXiv 2104.04473, and Qi et al., arXiv 2401.10241.
constexpr Case kCases[] = {
    {"gpipe", PipelineKind::GPipe, 1, false, 3.0},
    {"1f1b", PipelineKind::OneFOneB, 1, false, 3.0},
    {"interleaved v=2", PipelineKind::Interleaved, 2, false, 1.5},
    {"1f1b, gradient sent first", PipelineKind::OneFOneB, 1, true, 2.0},
    {"interleaved v=2, gradient sent first", PipelineKind::Interleaved, 2, true, 1.0},
    {"zb-h1", PipelineKind::ZeroBubbleH1, 1, true, 1.0},
};

double over_ranks(comm::Communicator& world, double value, comm::ReduceOp op) {
  world.all_reduce_wait({&value, 1, format::DType::F64}, op);
  return value;
}

void measure(comm::Communicator& world, const Case& c, int64_t micro_batches, double unit,
             int steps) {
  const auto plan =
      layout::make_pipeline_plan(c.kind, world.size(), c.chunks, micro_batches);
  const double part = unit / c.chunks;
  const PipelineTimes times{part, c.split ? part : 2 * part, c.split ? part : 0.0, 0.0};
  SleepingStage stage(plan, world.rank(), times);
  double best_seconds = std::numeric_limits<double>::infinity();
  double bubble_of_best = 100.0;
  for (int i = 0; i <= steps; ++i) {
    world.barrier_wait();
    const auto begin = Clock::now();
    parallel::execute(plan, stage, world, {});
    const std::chrono::duration<double> spent = Clock::now() - begin;
    const double slowest = over_ranks(world, spent.count(), comm::ReduceOp::Max);
    const double busy = over_ranks(world, stage.take_busy(), comm::ReduceOp::Sum);
    if (i == 0 || slowest >= best_seconds) continue;  // the first warms up
    best_seconds = slowest;
    bubble_of_best = 100 * (1 - busy / (slowest * world.size()));
  }
  if (world.rank() != 0) return;
  const double work = 3.0 * unit * static_cast<double>(micro_batches);
  const double bubble = c.formula * unit * (world.size() - 1);
  fmt::print(
      "{{\"schedule\": \"{}\", \"ranks\": {}, \"micro_batches\": {}, "
      "\"seconds\": {:.4f}, \"bubble\": {:.2f}, \"simulated\": {:.2f}, \"formula\": "
      "{:.2f}}}\n",
      c.name, world.size(), micro_batches, best_seconds, bubble_of_best,
      100 * (1 - work / simulate_pipeline(plan, times).makespan),
      100 * bubble / (work + bubble));
  std::fflush(stdout);
}

void measure(comm::Communicator& world, double unit, int steps) {
  for (const int64_t rounds : {1, 2, 8}) {
    for (const Case& c : kCases) measure(world, c, rounds * world.size(), unit, steps);
  }
}

}  // namespace

int main(int argc, char** argv) {
  longhaul::tensor::warm_up_vector_math();
  const double unit = (argc > 1 ? std::atof(argv[1]) : 20.0) * 1e-3;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 3;
  if (unit <= 0 || steps < 1) {
    fmt::print(stderr, "usage: bench_pipeline [unit in ms [steps]]\n");
    return 78;
  }
  try {
    if (comm::detect_launch().by_launcher) {
      const auto world = comm::world();
      measure(*world, unit, steps);
      comm::finish(*world);
    } else {
      comm::run_fake_ranks(4, [&](const auto& world) { measure(*world, unit, steps); });
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_pipeline: {}\n", error.what());
    return 1;
  }
  return 0;
}
