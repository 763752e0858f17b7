#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "longhaul/families/decoder.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/infer/generate.h"
#include "longhaul/tensor/flat_pieces.h"
#include "longhaul/tensor/init.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/flat_parameters.h"
#include "tests/support/whole_model.h"

namespace longhaul::infer {
namespace {

ModelConfig small() {
  DecoderSettings s;
  s.hidden_size = 32;
  s.intermediate_size = 48;
  s.num_hidden_layers = 2;
  s.num_attention_heads = 4;
  s.num_key_value_heads = 2;
  s.head_dim = 8;
  s.rms_norm_eps = 1e-5;
  s.initializer_range = 0.2;
  return make_llama(s, /*vocab_size=*/90, /*max_position_embeddings=*/64);
}

/// A model with random weights.
struct Fixture {
  ModelConfig config = small();
  std::unique_ptr<models::Model> model = models::build(config);
  std::vector<tensor::ParameterPtr> parameters = model->parameters();
  tensor::FlatBuffers flat{
      flat_parameters(parameters, {1.0, 0.0, true}), {format::DType::F32}, at::kCPU};
  Fixture() {
    read_weights(flat, [&](const format::TensorSlice& slice, int64_t begin, int64_t end,
                           format::DType, std::span<std::byte> out) {
      const bool norm = slice.global_shape.size() == 1;
      tensor::initial_values(slice, {norm ? Init::Kind::Ones : Init::Kind::Normal, 0.2},
                             5, begin, end, reinterpret_cast<float*>(out.data()));
    });
    model->prepare(64, at::kCPU);
  }
};

/// Returns the logits of every position, computed without a cache.
at::Tensor full_logits(const Fixture& f, const std::vector<int64_t>& ids) {
  const at::NoGradGuard no_grad;
  nn::ForwardContext context;
  context.batch.rows = 1;
  context.batch.seq = static_cast<int64_t>(ids.size());
  context.batch.positions = at::arange(context.batch.seq, at::kInt);
  context.batch.tokens = at::tensor(ids, at::kLong);
  return f.model->logits(f.model->hidden({}, context)[0]);
}

TEST(Generate, GreedyWithACacheIsTheArgmaxOfTheFullForward) {
  const Fixture f;
  std::vector<int64_t> ids = {3, 14, 15, 9, 2, 6};
  SamplingOptions options;
  options.max_new_tokens = 12;
  const auto fresh = generate(testing::next_id_of(*f.model, options, 64), ids, options,
                              [](int64_t) { return true; });
  ASSERT_EQ(fresh.size(), 12U);
  for (const int64_t id : fresh) {
    EXPECT_EQ(full_logits(f, ids)[-1].argmax().item<int64_t>(), id);
    ids.push_back(id);
  }
}

TEST(Generate, EndsBeforeAStopIdAndWhenTheCallerHasEnough) {
  const Fixture f;
  SamplingOptions options;
  options.max_new_tokens = 12;
  const auto next = [&] { return testing::next_id_of(*f.model, options, 64); };
  const auto all = generate(next(), {3, 14}, options, [](int64_t) { return true; });
  options.stop_ids = {all[3]};
  const auto first = std::find(all.begin(), all.end(), all[3]) - all.begin();
  EXPECT_EQ(generate(next(), {3, 14}, options, [](int64_t) { return true; }).size(),
            static_cast<size_t>(first));
  options.stop_ids = {};
  int seen = 0;
  generate(next(), {3, 14}, options, [&](int64_t) { return ++seen < 2; });
  EXPECT_EQ(seen, 2);
}

TEST(Sample, FollowsTheProbabilitiesAndTheSeed) {
  const at::Tensor logits = at::log(at::tensor({0.5, 0.3, 0.15, 0.05}));
  SamplingOptions options;
  options.temperature = 1.0;
  std::vector<double> share(4, 0.0);
  for (int64_t i = 0; i < 20000; ++i) {
    share[static_cast<size_t>(sample(logits, options, i))] += 1.0 / 20000;
  }
  EXPECT_NEAR(share[0], 0.5, 0.02);
  EXPECT_NEAR(share[2], 0.15, 0.02);
  EXPECT_EQ(sample(logits, options, 7), sample(logits, options, 7));
}

TEST(Sample, TakesTheLargestAtTheSmallestTemperature) {
  SamplingOptions options;
  options.temperature = 1e-310;
  for (const double shift : {-9.0, 0.0, 9.0}) {
    const at::Tensor logits = at::tensor({-1.0, 0.5, -3.0}).add(shift);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(sample(logits, options, i), 1) << shift;
  }
}

TEST(Sample, TopPKeepsTheSmallestSetThatReachesIt) {
  const at::Tensor logits = at::log(at::tensor({0.05, 0.5, 0.3, 0.15}));
  SamplingOptions options;
  options.temperature = 1.0;
  options.top_p = 0.6;
  bool seen[4] = {};
  for (int64_t i = 0; i < 2000; ++i) seen[sample(logits, options, i)] = true;
  EXPECT_TRUE(seen[1] && seen[2]);
  EXPECT_FALSE(seen[0] || seen[3]);
}

/// A source of sequences that count upwards, in which one label is ignored.
class Counting : public data::TokenSource {
 public:
  int64_t num_sequences() const override { return 7; }
  int64_t seq_len() const override { return 10; }
  int64_t max_token_id() const override { return 90; }
  void read(int64_t index, data::TokenBatch& batch, int64_t row) const override {
    for (int64_t i = 0; i < 10; ++i) {
      const auto at = static_cast<size_t>(row * 10 + i);
      batch.tokens[at] = static_cast<int32_t>(index * 11 + i);
      batch.targets[0][at] =
          i == 4 ? data::kIgnore : static_cast<int32_t>(index * 11 + i + 1);
      batch.positions[at] = static_cast<int32_t>(i);
      batch.document_start[at] = 0;
    }
  }
  std::string describe() const override { return "counting"; }
  std::string fingerprint() const override { return "counting"; }
};

TEST(Evaluate, IsTheMeanCrossEntropyWhateverTheRanksAndMicroBatches) {
  const Fixture f;
  double sum = 0.0;
  for (int64_t s = 0; s < 7; ++s) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 10; ++i) ids.push_back(s * 11 + i);
    const at::Tensor log_p = at::log_softmax(full_logits(f, ids).to(at::kDouble), 1);
    for (int64_t i = 0; i < 10; ++i) {
      if (i != 4) sum -= log_p[i][s * 11 + i + 1].item<double>();
    }
  }
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t micro : {1, 2, 4, 7}) {
      comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& group) {
        comm::Communicator& world = *group;
        EvaluateOptions options;
        options.micro_size = micro;
        options.micro_batches = 2;
        options.full = micro == 4;
        const Evaluation e =
            evaluate(testing::loss_of(*f.model), Counting(), world, options);
        EXPECT_EQ(e.targets[0], 63);
        EXPECT_EQ(e.sequences, 7);
        EXPECT_NEAR(e.loss(), sum / 63, 1e-5);
        EXPECT_NEAR(e.perplexity(), std::exp(sum / 63), 1e-3);
      });
    }
  }
}

/// A source without a target in its first sequences.
class Ignored final : public Counting {
 public:
  explicit Ignored(int64_t without) : without_(without) {}
  void read(int64_t index, data::TokenBatch& batch, int64_t row) const override {
    Counting::read(index, batch, row);
    reads = index + 1;
    if (index >= without_) return;
    std::fill_n(batch.targets[0].begin() + row * 10, 10, data::kIgnore);
  }
  mutable int64_t reads = 0;

 private:
  int64_t without_;
};

TEST(Evaluate, AMeanOverNoTargetIsRefusedByTheNameOfTheData) {
  EXPECT_NO_THROW(require_targets(Ignored(6), 0, "data"));
  const auto message = [](int64_t without, int64_t most) -> std::string {
    try {
      require_targets(Ignored(without), most, "data.validation wiki");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(7, 0).find("[data] data.validation wiki: 7 sequences read, but none "
                               "has a target for next_token"),
            0U)
      << message(7, 0);
  // A target in a sequence that is not read does not count.
  EXPECT_EQ(message(6, 3).find("[data] data.validation wiki: 3 sequences read"), 0U);
  EXPECT_EQ(message(2, 3), "");
}

TEST(Evaluate, TargetsAreLookedForNoFurtherThanToTheFirst) {
  const Ignored source(0);
  require_targets(source, 0, "data");
  EXPECT_EQ(source.reads, 1);
}

TEST(Evaluation, OfNoTargetsHasNoMean) {
  const Evaluation nothing{{0.0}, {0}, 3};
  EXPECT_THROW(nothing.loss(), Error);
  EXPECT_THROW(nothing.perplexity(), Error);
}

}  // namespace
}  // namespace longhaul::infer
