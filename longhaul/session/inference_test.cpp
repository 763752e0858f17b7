#include "longhaul/session/inference.h"

#include <gtest/gtest.h>

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/comm/backend.h"
#include "longhaul/data/open_source.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/tensor/init.h"
#include "tests/dist/tiny_models.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/weights_files.h"
#include "tests/support/whole_model.h"

namespace longhaul::session {
namespace {

constexpr int64_t kLength = 32;
const std::vector<int64_t> kPrompt = {3, 14, 15, 9};

/// Returns initial values of a tensor, large enough for the model to choose different
/// tokens.
std::vector<float> values_of(const format::TensorSlice& slice) {
  int64_t count = 1;
  for (const int64_t extent : slice.extent) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  const bool norm = slice.global_shape.size() == 1;
  tensor::initial_values(slice, {norm ? Init::Kind::Ones : Init::Kind::Normal, 0.3}, 5, 0,
                         count, values.data());
  return values;
}

/// Writes a Hugging Face directory of a tiny Llama.
ModelConfig write_model(const fs::path& dir) {
  testing::write_file(dir / "config.json", testing::tiny_config("llama").dump());
  ModelConfig model = load_model_config(dir / "config.json", {});
  std::map<std::string, format::TensorSlice> slices;
  format::SafetensorsPlan plan;
  for (const ParameterDescription& p : model.description.parameters()) {
    slices[p.name] = p.whole();
    plan.add(p.name, format::DType::F32, p.shape);
  }
  format::SafetensorsWriter writer(dir / "model.safetensors", plan);
  for (const format::SafetensorsEntry& entry : plan.entries) {
    const std::vector<float> values = values_of(slices.at(entry.name));
    writer.append(std::as_bytes(std::span(values)));
  }
  writer.finish();
  return model;
}

/// The loss and the tokens of a model that lies whole on one rank, computed without a
/// Session.
struct Answer {
  double loss = 0.0;
  std::vector<int64_t> ids;
};

infer::SamplingOptions greedy() {
  infer::SamplingOptions options;
  options.max_new_tokens = 12;
  return options;
}

Answer answer_of(const ModelConfig& config, const data::TokenSource& source) {
  const auto model = models::build(config);
  for (const tensor::ParameterPtr& p : model->parameters()) {
    const std::vector<float> values = values_of(p->slice());
    p->set_frozen(true);
    p->bind(at::tensor(values).view(p->slice().extent), at::Tensor());
  }
  model->prepare(kLength, at::kCPU);
  const auto one = comm::self_world("one");
  return {infer::evaluate(infer::testing::loss_of(*model), source, *one, {}).loss(),
          infer::generate(infer::testing::next_id_of(*model, greedy(), kLength), kPrompt,
                          greedy(), [](int64_t) { return true; })};
}

RunConfig settings_of(const fs::path& dir, int ranks) {
  RunConfig config;
  config.run.device = "cpu";
  config.run.threads = 1;
  config.model.config = dir / "config.json";
  config.data.seq_len = kLength;
  config.parallel.tp = ranks;
  config.parallel.sequence = false;
  config.precision.compute = ComputeType::Fp32;
  config.batch.micro_size = 1;
  config.batch.global_size = 2;
  return config;
}

TEST(Inference, ASessionEvaluatesAndGeneratesAsItsModelDoes) {
  const testing::TempDir dir;
  const ModelConfig config = write_model(dir.path());
  const auto data = data::synthetic_source(5, kLength, config.vocab_size, 1);
  const Answer answer = answer_of(config, *data);
  ASSERT_EQ(answer.ids.size(), 12U);
  for (const int ranks : {1, 2}) {
    comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
      const auto weights = checkpoint::as_parameters(
          checkpoint::WeightsSource::open(dir.path(), *world), config.description);
      const Session session =
          load_for_inference(settings_of(dir.path(), ranks), *weights, world);
      StageRunner runner(session.chunks(), session.replicas(), stage_options(session));
      const infer::Evaluation found = infer::evaluate(
          [&](std::vector<data::TokenBatch>& batches) {
            return loss_sums(session, runner, batches);
          },
          *data, session.mesh().dp(), {});
      EXPECT_EQ(found.sequences, 5);
      EXPECT_NEAR(found.loss(), answer.loss, 1e-5 * answer.loss) << ranks << " ranks";

      SequenceRunner sequence(session, greedy(), kLength);
      const auto ids =
          infer::generate([&](const std::vector<int64_t>& seen,
                              int64_t step) { return sequence.next(seen, step); },
                          kPrompt, greedy(), [](int64_t) { return true; });
      EXPECT_EQ(ids, answer.ids) << ranks << " ranks";
    });
  }
}

}  // namespace
}  // namespace longhaul::session
