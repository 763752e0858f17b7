// Measures what a few training steps hold in memory on every rank, for bench_memory.py.
//   bench_memory RUN.toml [--set KEY=VALUE]
// Trains run.steps steps as `longhaul train` does, without a run directory. Rank 0 prints
// one JSON line per rank. It has the bytes of flat buffers and optimizer state, and the
// most bytes that live tensors took beside them in a step. It also has the growth of the
// resident set.
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/comm/backend.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/schedule.h"
#include "longhaul/system/memory.h"
#include "longhaul/tensor/vector_math.h"
#include "longhaul/train/start/data_feed.h"
#include "longhaul/train/step/step_loss.h"

namespace longhaul {
namespace {

/// LibTorch's CPU memory, with the bytes of what is alive counted.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    auto* header = static_cast<Header*>(c10::alloc_cpu(sizeof(Header) + bytes));
    *header = {this, static_cast<int64_t>(bytes)};
    const int64_t live = live_ += header->bytes;
    int64_t peak = peak_;
    while (live > peak && !peak_.compare_exchange_weak(peak, live)) {
    }
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  int64_t live() const { return live_; }
  /// Returns the largest number of bytes since the last call.
  int64_t take_peak() { return peak_.exchange(live_); }

 private:
  /// The size of a block stands before it; it is as long as blocks are aligned.
  struct alignas(c10::gAlignment) Header {
    CountingAllocator* owner;
    int64_t bytes;
  };
  static void release(void* data) {
    if (data == nullptr) return;
    Header* header = static_cast<Header*>(data) - 1;
    header->owner->live_ -= header->bytes;
    c10::free_cpu(header);
  }

  std::atomic<int64_t> live_ = 0;
  std::atomic<int64_t> peak_ = 0;
};

class Run {
 public:
  Run(const LoadedConfig& loaded, std::shared_ptr<comm::Communicator> world,
      CountingAllocator& memory)
      : memory_(memory),
        resident_before_(resident_bytes()),
        session_(train::build_session(loaded.config, std::move(world), quiet_)),
        loader_(session_.data().train,
                train::loader_options(session_, /*prefetch=*/false)),
        schedule_(config().schedule, config().optimizer.lr, steps()),
        runner_(session_.chunks(), session_.replicas(),
                session::stage_options(session_)) {
    train::initialise_weights(session_.state(), static_cast<uint64_t>(config().run.seed));
    session_.replicas().share_weights();
  }

  Json measure() {
    Json activations = Json::array();
    for (int64_t step = 1; step <= steps(); ++step) activations.push_back(train(step));
    session_.replicas().finish_weights();
    const comm::Mesh& mesh = session_.mesh();
    return {{"rank", session_.world().rank()},
            {"place", mesh.coordinates()},
            {"weights_and_gradients", session_.flat().bytes()},
            {"optimizer", session_.optimizer().bytes()},
            {"activations", activations},
            {"resident", peak_resident_bytes() - resident_before_}};
  }

 private:
  const RunConfig& config() const { return session_.config(); }
  int64_t steps() const { return config().run.steps.value(); }

  /// Returns the largest number of bytes of tensors that the passes add to what lived
  /// before.
  int64_t train(int64_t step) {
    data::StepBatch& batch = loader_.next();
    const train::BatchTotals totals = train::sum_over_replicas(session_, batch);
    const train::StepLoss loss(session_, totals);
    session_.layout().take_own_positions(batch.micro_batches);
    session_.flat().zero_grads();
    const int64_t before = memory_.live();
    memory_.take_peak();
    runner_.begin_step(batch.micro_batches, loss.scales());
    session::run_plan(session_, session_.layout().description().training_plan(), runner_);
    const int64_t peak = memory_.take_peak() - before;
    const at::Tensor squares =
        session_.optimizer().gradient_squares(session_.parameter_names());
    const double* first = squares.const_data_ptr<double>();
    std::vector<double> sums(first, first + squares.numel());
    const double norm = optim::norm_over(session_.world(), sums);
    session_.optimizer().step(schedule_.lr(step),
                              optim::clip_coefficient(norm, config().optimizer.clip),
                              session_.world());
    session_.replicas().share_weights();
    return peak;
  }

  CountingAllocator& memory_;
  int64_t resident_before_;
  system::Logger quiet_;
  train::TrainingSession session_;
  data::Loader loader_;
  optim::Schedule schedule_;
  session::StageRunner runner_;
};

LoadedConfig load(int argc, char** argv) {
  std::vector<std::string> plain, sets;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--set" && i + 1 < argc) {
      sets.emplace_back(argv[++i]);
    } else {
      plain.push_back(word);
    }
  }
  LH_CHECK(plain.size() == 1, "bench", "usage: RUN.toml [--set KEY=VALUE ...]{}", "");
  return load_run_config(plain[0], sets);
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  using namespace longhaul;
  system::tune_malloc();
  tensor::warm_up_vector_math();
  static CountingAllocator memory;
  c10::SetCPUAllocator(&memory, /*priority=*/1);
  std::shared_ptr<comm::Communicator> world;
  try {
    const LoadedConfig loaded = load(argc, argv);
    world = comm::world();
    const std::string mine = json_text(Run(loaded, world, memory).measure());
    for (const std::string& line : world->gather_strings(mine)) {
      if (world->rank() == 0) fmt::print("{}\n", line);
    }
    comm::finish(*world);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_memory: error: {}\n", error.what());
    if (world) world->abort(1);
    return 1;
  }
  return 0;
}
