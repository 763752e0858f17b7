#include "longhaul/parallel/pipeline/runner.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <c10/util/intrusive_ptr.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "tests/support/fake_device.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/simulate_pipeline.h"

namespace longhaul::parallel {
namespace {

constexpr int64_t kWidth = 24;

/// Returns values that are all different, without a generator that threads would share.
at::Tensor values(at::IntArrayRef shape, double seed) {
  const int64_t count = c10::multiply_integers(shape);
  return at::sin(at::arange(count, at::kFloat) * 0.37 + seed * 11.3).reshape(shape);
}

/// The results of the stages in a step.
struct Results {
  std::map<int64_t, at::Tensor> outputs;    ///< of the last stage, by micro batch
  std::map<int64_t, at::Tensor> gradients;  ///< of the weight, by global stage
  std::map<int64_t, int> accumulations;     ///< by global stage
};

/// One global stage: y = tanh(x w^T). Its backward computes the input's gradient by
/// autograd and leaves the weight's gradient to weight_gradients().
class TanhLayer {
 public:
  TanhLayer(int64_t index, at::ScalarType dtype)
      : weight_((values({kWidth, kWidth}, static_cast<double>(index)) * 0.4).to(dtype)),
        gradient_(at::zeros({kWidth, kWidth})) {}

  at::Tensor forward(int64_t m, const at::Tensor& input) {
    Saved saved;
    saved.input = input.detach().set_requires_grad(true);
    saved.linear = saved.input.matmul(weight_.t());
    saved.output = saved.linear.tanh();
    const at::Tensor output = saved.output;
    EXPECT_TRUE(saved_.emplace(m, std::move(saved)).second);
    return output;
  }
  at::Tensor backward(int64_t m, const at::Tensor& grad) {
    Saved saved = std::move(saved_.at(m));
    saved_.erase(m);
    const auto grads = torch::autograd::grad({saved.output}, {saved.input, saved.linear},
                                             {grad}, /*retain_graph=*/false);
    queue_.emplace(m, std::pair(saved.input.detach(), grads[1]));
    return grads[0];
  }
  void weight_gradients(int64_t m) {
    const auto [x, dy] = queue_.at(m);
    gradient_ += dy.t().matmul(x).to(at::kFloat);
    queue_.erase(m);
  }
  const at::Tensor& gradient() const { return gradient_; }

 private:
  struct Saved {
    at::Tensor input, linear, output;
  };
  at::Tensor weight_, gradient_;
  std::map<int64_t, Saved> saved_;
  std::map<int64_t, std::pair<at::Tensor, at::Tensor>> queue_;
};

/// Returns the shape of a micro batch; micro batches differ in shape.
std::vector<int64_t> shape_of(int64_t micro_batch) {
  return {5 + micro_batch % 3, kWidth};
}
at::Tensor input_of(int64_t micro_batch, at::ScalarType dtype) {
  return values(shape_of(micro_batch), 0.5 + static_cast<double>(micro_batch)).to(dtype);
}
at::Tensor loss_gradient(int64_t micro_batch, at::ScalarType dtype) {
  return values(shape_of(micro_batch), 7.7 - static_cast<double>(micro_batch)).to(dtype);
}

/// Runs `body` on every rank with one thread each, since several teams of threads would
/// only compete for the cores.
void run_ranks(
    int ranks,
    const std::function<void(const std::shared_ptr<comm::Communicator>&)>& body,
    const comm::CommOptions& options = {}) {
  comm::run_fake_ranks(
      ranks,
      [&](const std::shared_ptr<comm::Communicator>& world) {
        at::set_num_threads(1);
        body(world);
      },
      options);
}

/// The stages of one rank.
class TanhStage : public PipelineStage {
 public:
  TanhStage(const layout::PipelinePlan& plan, int rank, at::ScalarType dtype,
            bool jitter = false)
      : plan_(plan), rank_(rank), dtype_(dtype), jitter_(jitter) {
    for (int c = 0; c < plan.chunks; ++c)
      layers_.emplace_back(plan.global_stage(rank, c), dtype);
  }

  Shapes boundary_shapes(int64_t m) override { return {shape_of(m)}; }
  nn::Tensors forward(int64_t c, int64_t m, const nn::Tensors& input) override {
    pause(c + 3 * m);
    EXPECT_EQ(input.empty(), global(c) == 0);
    at::Tensor output =
        layer(c).forward(m, input.empty() ? input_of(m, dtype_) : input[0]);
    if (global(c) + 1 < plan_.global_stages()) return {output};
    results.outputs[m] = output.detach();
    return {};
  }
  nn::Tensors backward(int64_t c, int64_t m, const nn::Tensors& grads) override {
    pause(7 * c + m);
    EXPECT_EQ(grads.empty(), global(c) + 1 == plan_.global_stages());
    const at::Tensor result =
        layer(c).backward(m, grads.empty() ? loss_gradient(m, dtype_) : grads[0]);
    return global(c) == 0 ? nn::Tensors() : nn::Tensors{result};
  }
  void weight_gradients(int64_t c, int64_t m) override {
    layer(c).weight_gradients(m);
    ++results.accumulations[global(c)];
    results.gradients[global(c)] = layer(c).gradient();
  }

  Results results;

 private:
  int64_t global(int64_t chunk) const { return plan_.global_stage(rank_, chunk); }
  TanhLayer& layer(int64_t chunk) { return layers_[static_cast<size_t>(chunk)]; }
  /// Makes the ranks wait, each for another time in every action.
  void pause(int64_t salt) const {
    if (!jitter_) return;
    std::this_thread::sleep_for(
        std::chrono::microseconds((salt * 7919 + rank_ * 104729) % 5 * 150));
  }

  const layout::PipelinePlan& plan_;
  int rank_;
  at::ScalarType dtype_;
  bool jitter_;
  std::vector<TanhLayer> layers_;
};

/// Runs the layers in a plain loop.
Results plain_loop(int64_t stages, int64_t micro_batches, at::ScalarType dtype) {
  at::set_num_threads(1);
  std::vector<TanhLayer> layers;
  layers.reserve(static_cast<size_t>(stages));
  for (int64_t s = 0; s < stages; ++s) layers.emplace_back(s, dtype);
  Results results;
  for (int64_t m = 0; m < micro_batches; ++m) {
    at::Tensor x = input_of(m, dtype);
    for (TanhLayer& layer : layers) x = layer.forward(m, x);
    results.outputs[m] = x.detach();
    at::Tensor grad = loss_gradient(m, dtype);
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      grad = layer->backward(m, grad);
      layer->weight_gradients(m);
    }
  }
  for (int64_t s = 0; s < stages; ++s)
    results.gradients[s] = layers[static_cast<size_t>(s)].gradient();
  return results;
}

void expect_same_bits(const std::map<int64_t, at::Tensor>& a,
                      const std::map<int64_t, at::Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [key, tensor] : a) {
    ASSERT_TRUE(b.contains(key)) << what << " " << key;
    EXPECT_TRUE(at::equal(tensor, b.at(key))) << what << " " << key;
  }
}

/// How messages travel: as soon as both sides have posted them, or through a queue of
/// each rank that carries out one call after the other, as a device's stream does.
enum class Transfers { AtOnce, InOrder };

Results run_pipeline(const layout::PipelinePlan& plan, at::ScalarType dtype, bool jitter,
                     Transfers transfers = Transfers::AtOnce) {
  std::mutex mutex;
  Results all;
  const auto run = [&](comm::Communicator& pp) {
    at::set_num_threads(1);
    TanhStage stage(plan, pp.rank(), dtype, jitter);
    execute(plan, stage, pp, {dtype, at::kCPU});
    const std::lock_guard lock(mutex);
    all.outputs.merge(stage.results.outputs);
    all.gradients.merge(stage.results.gradients);
    all.accumulations.merge(stage.results.accumulations);
  };
  if (transfers == Transfers::AtOnce) {
    run_ranks(plan.stages, [&](const auto& world) { run(*world); });
  } else {
    comm::run_fake_devices(
        plan.stages, [&](auto& group, const auto& /*fake*/) { run(group); }, {},
        [](comm::FakeDevice& fake, int /*rank*/) { fake.computes_here = true; });
  }
  return all;
}

void expect_as_plain_loop(const layout::PipelinePlan& plan,
                          at::ScalarType dtype = at::kFloat, bool jitter = false,
                          Transfers transfers = Transfers::AtOnce) {
  const std::string what =
      fmt::format("p {} v {} m {}", plan.stages, plan.chunks, plan.micro_batches);
  const Results expected = plain_loop(plan.global_stages(), plan.micro_batches, dtype);
  const Results found = run_pipeline(plan, dtype, jitter, transfers);
  expect_same_bits(found.outputs, expected.outputs, "output, " + what);
  if (!plan.training) return;
  expect_same_bits(found.gradients, expected.gradients, "gradient, " + what);
  for (int64_t s = 0; s < plan.global_stages(); ++s) {
    EXPECT_EQ(found.accumulations.at(s), plan.micro_batches) << what;
  }
}

TEST(Runner, EveryScheduleGivesTheBitsOfAPlainLoop) {
  for (const int p : {1, 2, 4}) {
    for (const int64_t m : {4, 8}) {
      for (const PipelineKind kind :
           {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::ZeroBubbleH1}) {
        expect_as_plain_loop(layout::make_pipeline_plan(kind, p, 1, m));
      }
      expect_as_plain_loop(
          layout::make_pipeline_plan(PipelineKind::Interleaved, p, 2, m));
    }
  }
}

/// A receive that is posted before a send that the peer needs first would hold up that
/// send for ever.
TEST(Runner, EveryScheduleRunsWhereTransfersOfARankRunOneAfterTheOther) {
  for (const int p : {2, 3, 4}) {
    for (const PipelineKind kind :
         {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::ZeroBubbleH1}) {
      expect_as_plain_loop(layout::make_pipeline_plan(kind, p, 1, 6), at::kFloat, true,
                           Transfers::InOrder);
    }
    for (const int v : {2, 3}) {
      expect_as_plain_loop(
          layout::make_pipeline_plan(PipelineKind::Interleaved, p, v, 2L * p), at::kFloat,
          true, Transfers::InOrder);
      expect_as_plain_loop(layout::inference_plan(p, v, 5), at::kFloat, true,
                           Transfers::InOrder);
    }
  }
}

TEST(Runner, FewerMicroBatchesThanStagesGiveTheSameBits) {
  for (const PipelineKind kind :
       {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::ZeroBubbleH1}) {
    expect_as_plain_loop(layout::make_pipeline_plan(kind, 4, 1, 2));
  }
}

TEST(Runner, RanksThatRunApartGiveTheSameBits) {
  expect_as_plain_loop(layout::make_pipeline_plan(PipelineKind::Interleaved, 2, 3, 6),
                       at::kFloat, true);
  expect_as_plain_loop(layout::make_pipeline_plan(PipelineKind::Interleaved, 4, 2, 8),
                       at::kFloat, true);
  expect_as_plain_loop(layout::make_pipeline_plan(PipelineKind::ZeroBubbleH1, 3, 1, 7),
                       at::kFloat, true);
}

TEST(Runner, BoundariesInBf16GiveTheBitsOfAPlainLoopInBf16) {
  expect_as_plain_loop(layout::make_pipeline_plan(PipelineKind::OneFOneB, 2, 1, 4),
                       at::kBFloat16);
}

TEST(Runner, InferencePlansGiveTheSameOutputs) {
  for (const int p : {1, 2, 4}) {
    for (const int v : {1, 2}) {
      for (const int64_t m : {1, 5, 8})
        expect_as_plain_loop(layout::inference_plan(p, v, m));
    }
  }
}

/// Messages carry no tag: a receiver that posted receives in the order of its own actions
/// would mix them up.
TEST(Runner, ReceivesInTheOrderOfTheSenderWhateverTheOwnOrder) {
  auto plan = layout::inference_plan(2, 1, 5);
  std::swap(plan.actions[0][1], plan.actions[0][3]);
  expect_as_plain_loop(plan);
  plan = layout::make_pipeline_plan(PipelineKind::Interleaved, 2, 2, 4);
  std::swap(plan.actions[0][1], plan.actions[0][0]);
  simulate_pipeline(plan, {});
  expect_as_plain_loop(plan);
}

/// Checks plain_loop() itself: its backward, in two parts, gives autograd's gradients.
TEST(Runner, GradientsAreThoseOfAutogradOverTheWholeModel) {
  constexpr int64_t kStages = 3;
  constexpr int64_t kMicroBatches = 4;
  std::vector<at::Tensor> weights;
  weights.reserve(kStages);
  for (int64_t s = 0; s < kStages; ++s) {
    weights.push_back(
        (values({kWidth, kWidth}, static_cast<double>(s)) * 0.4).set_requires_grad(true));
  }
  for (int64_t m = 0; m < kMicroBatches; ++m) {
    at::Tensor x = input_of(m, at::kFloat);
    for (const at::Tensor& w : weights) x = x.matmul(w.t()).tanh();
    torch::autograd::backward({x}, {loss_gradient(m, at::kFloat)});
  }
  const auto plan =
      layout::make_pipeline_plan(PipelineKind::OneFOneB, kStages, 1, kMicroBatches);
  const Results found = run_pipeline(plan, at::kFloat, false);
  for (int64_t s = 0; s < kStages; ++s) {
    const at::Tensor expected = weights[static_cast<size_t>(s)].grad();
    EXPECT_LE((found.gradients.at(s) - expected).norm().item<double>(),
              2e-6 * expected.norm().item<double>());
  }
}

/// A stage that keeps weak references to the tensors that it returns.
class ForgetfulStage : public PipelineStage {
 public:
  Shapes boundary_shapes(int64_t) override { return {{3}}; }
  nn::Tensors forward(int64_t, int64_t m, const nn::Tensors& input) override {
    if (!input.empty()) return {};
    const at::Tensor output = values({3}, static_cast<double>(m));
    outputs_.emplace_back(output.storage().getWeakStorageImpl());
    return {output};
  }
  nn::Tensors backward(int64_t, int64_t m, const nn::Tensors& grads) override {
    if (grads.empty()) return {values({3}, static_cast<double>(m))};
    if (m == 0) {
      for (const auto& output : outputs_) {
        if (output.use_count() > 0) ++alive_at_first_backward;
      }
    }
    return {};
  }
  void weight_gradients(int64_t, int64_t) override {}

  int alive_at_first_backward = 0;

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> outputs_;
};

TEST(Runner, SentOutputsAreFreedWhileTheStepRuns) {
  // In GPipe the first backward comes after every forward of the other rank.
  const auto plan = layout::make_pipeline_plan(PipelineKind::GPipe, 2, 1, 6);
  run_ranks(2, [&](const auto& world) {
    ForgetfulStage stage;
    execute(plan, stage, *world, {});
    EXPECT_EQ(stage.alive_at_first_backward, 0);
  });
}

class FailingStage : public TanhStage {
 public:
  using TanhStage::TanhStage;
  nn::Tensors backward(int64_t c, int64_t m, const nn::Tensors& grads) override {
    if (m == 2) throw InputError("stage", "bad record in micro batch 2");
    return TanhStage::backward(c, m, grads);
  }
};

TEST(Runner, AnExceptionOfAStageReachesTheCallerAndNothingHangs) {
  const auto plan = layout::make_pipeline_plan(PipelineKind::OneFOneB, 3, 1, 6);
  try {
    run_ranks(3, [&](const auto& world) {
      FailingStage failing(plan, world->rank(), at::kFloat);
      TanhStage sound(plan, world->rank(), at::kFloat);
      PipelineStage& stage =
          world->rank() == 1 ? failing : static_cast<PipelineStage&>(sound);
      execute(plan, stage, *world, {});
    });
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "[stage] bad record in micro batch 2");
  }
}

TEST(Runner, AMissingPeerIsNamedWithTheActionThatWaits) {
  const auto plan = layout::make_pipeline_plan(PipelineKind::OneFOneB, 2, 1, 2);
  comm::CommOptions options;
  options.deadline_seconds = 0.2;
  try {
    run_ranks(
        2,
        [&](const auto& world) {
          if (world->rank() == 1) return;
          TanhStage stage(plan, 0, at::kFloat);
          execute(plan, stage, *world, {});
        },
        options);
    ADD_FAILURE() << "no error";
  } catch (const TemporaryError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 0 waits with B0.0 for what rank 1 sends: [comm] send_recv"),
              std::string::npos)
        << text;
  }
}

/// A stage that passes on a second tensor of another shape, which names its origin.
class PairStage : public TanhStage {
 public:
  using TanhStage::TanhStage;
  Shapes boundary_shapes(int64_t m) override { return {shape_of(m), {m + 2}}; }
  nn::Tensors forward(int64_t c, int64_t m, const nn::Tensors& input) override {
    if (!input.empty()) expect_mark(input, m, 1.0);
    nn::Tensors output = TanhStage::forward(c, m, input);
    if (!output.empty()) output.push_back(at::full({m + 2}, mark(m)));
    return output;
  }
  nn::Tensors backward(int64_t c, int64_t m, const nn::Tensors& grads) override {
    if (!grads.empty()) expect_mark(grads, m, -1.0);
    nn::Tensors result = TanhStage::backward(c, m, grads);
    if (!result.empty()) result.push_back(at::full({m + 2}, -mark(m)));
    return result;
  }

 private:
  static double mark(int64_t m) { return 0.5 + static_cast<double>(m); }
  static void expect_mark(const nn::Tensors& tensors, int64_t m, double sign) {
    ASSERT_EQ(tensors.size(), 2);
    EXPECT_TRUE(at::equal(tensors[1], at::full({m + 2}, sign * mark(m))));
  }
};

TEST(Runner, AllTensorsOfABoundaryArriveWithTheirMicroBatch) {
  const auto plan = layout::make_pipeline_plan(PipelineKind::Interleaved, 2, 2, 4);
  const Results expected = plain_loop(4, 4, at::kFloat);
  run_ranks(2, [&](const auto& world) {
    PairStage stage(plan, world->rank(), at::kFloat);
    execute(plan, stage, *world, {});
    for (const auto& [s, gradient] : stage.results.gradients) {
      EXPECT_TRUE(at::equal(gradient, expected.gradients.at(s))) << "stage " << s;
    }
  });
}

class WideStage : public TanhStage {
 public:
  using TanhStage::TanhStage;
  nn::Tensors forward(int64_t, int64_t, const nn::Tensors&) override {
    return {at::zeros({2, 2})};
  }
};

TEST(Runner, AnOutputOfAnotherShapeIsRefusedWhereItIsMade) {
  const auto plan = layout::inference_plan(2, 1, 1);
  try {
    run_ranks(2, [&](const auto& world) {
      WideStage stage(plan, world->rank(), at::kFloat);
      execute(plan, stage, *world, {});
    });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 0 passes on 4 elements of Float for F0.0"),
              std::string::npos)
        << text;
  }
}

TEST(Runner, APlanForAnotherNumberOfRanksIsRefused) {
  const auto plan = layout::inference_plan(3, 1, 1);
  EXPECT_THROW(run_ranks(2,
                         [&](const auto& world) {
                           TanhStage stage(plan, world->rank(), at::kFloat);
                           execute(plan, stage, *world, {});
                         }),
               Error);
}

TEST(Trace, HoldsEveryActionOfEveryRankAsCompleteEvents) {
  const auto plan = layout::make_pipeline_plan(PipelineKind::ZeroBubbleH1, 2, 1, 4);
  const auto origin = Trace::Clock::now();
  std::vector<std::string> json(2);
  run_ranks(2, [&](const auto& world) {
    TanhStage stage(plan, world->rank(), at::kFloat, true);
    Trace trace(world->rank(), origin);
    execute(plan, stage, *world, {}, &trace);
    json[static_cast<size_t>(world->rank())] = trace.json();
  });
  const TestDirectory directory;
  const auto path = directory.path() / "trace.json";
  write_trace(path, json);
  const auto events = nlohmann::json::parse(read_text(path));
  std::vector<std::vector<std::string>> names(2);
  std::vector<double> end(2, 0.0);
  int waits = 0;
  for (const auto& event : events) {
    if (event.at("ph") == "M") continue;  // the name of a lane
    EXPECT_EQ(event.at("ph"), "X");
    const auto rank = event.at("pid").get<size_t>();
    if (event.at("tid") == 1) {
      ++waits;
      continue;
    }
    names[rank].push_back(event.at("name"));
    EXPECT_GE(event.at("ts").get<double>(), end[rank] - 0.002);
    end[rank] = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  EXPECT_GE(waits, 1);
  for (size_t r = 0; r < 2; ++r) {
    std::vector<std::string> expected;
    for (const layout::PipelineAction& action : plan.actions[r]) {
      expected.push_back(to_string(action));
    }
    EXPECT_EQ(names[r], expected);
  }
}

}  // namespace
}  // namespace longhaul::parallel
