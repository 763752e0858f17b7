#include "longhaul/session/inference.h"

#include <gtest/gtest.h>

#include <ATen/ops/log_softmax.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/comm/backend.h"
#include "longhaul/data/open_source.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/session/sequence_runner.h"
#include "longhaul/session/serving.h"
#include "longhaul/session/token_scores.h"
#include "longhaul/system/messages.h"
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

/// Writes a Hugging Face directory of a tiny Llama. The tensor of the name `zeros` is 0.
ModelConfig write_model(const fs::path& dir, const std::string& zeros = "") {
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
    std::vector<float> values = values_of(slices.at(entry.name));
    if (entry.name == zeros) std::ranges::fill(values, 0.0F);
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

std::unique_ptr<models::Model> whole_model(const ModelConfig& config) {
  auto model = models::build(config);
  for (const tensor::ParameterPtr& p : model->parameters()) {
    const std::vector<float> values = values_of(p->slice());
    p->set_frozen(true);
    p->bind(at::tensor(values).view(p->slice().extent), at::Tensor());
  }
  model->prepare(kLength, at::kCPU);
  return model;
}

Answer answer_of(const ModelConfig& config, const data::TokenSource& source) {
  const auto model = whole_model(config);
  const auto one = comm::self_world("one");
  return {infer::evaluate(infer::testing::loss_of(*model), source, *one, {}).loss(),
          infer::generate(infer::testing::next_id_of(*model, greedy(), kLength), kPrompt,
                          greedy(), [](int64_t) { return true; })};
}

RunConfig settings_of(const fs::path& dir, const ParallelSection& parallel) {
  RunConfig config;
  config.run.device = "cpu";
  config.run.threads = 1;
  config.model.config = dir / "config.json";
  config.data.seq_len = kLength;
  config.parallel = parallel;
  config.precision.compute = ComputeType::Fp32;
  config.batch.micro_size = 1;
  config.batch.global_size = 2 * parallel.pp;
  return config;
}

ParallelSection split(int64_t tp, int64_t pp, int64_t cp, bool sequence = false) {
  ParallelSection parallel;
  parallel.tp = tp;
  parallel.pp = pp;
  parallel.cp = cp;
  parallel.sequence = sequence;
  return parallel;
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
      const Session session = load_for_inference(
          settings_of(dir.path(), split(ranks, 1, 1)), *weights, world);
      StageRunner runner(session.chunks(), session.replicas(), stage_options(session));
      const infer::Evaluation found = infer::evaluate(
          [&](std::vector<data::TokenBatch>& batches) {
            return loss_sums(session, runner, batches);
          },
          *data, session.mesh().dp(), {});
      EXPECT_EQ(found.sequences, 5);
      EXPECT_NEAR(found.loss(), answer.loss, 1e-5 * answer.loss) << ranks << " ranks";

      SequenceRunner sequence(session);
      const auto ids = infer::generate(
          [&](const std::vector<int64_t>& seen, int64_t step) {
            return step == 0 ? sequence.begin({{seen, greedy()}})[0].id
                             : sequence.next()[0].id;
          },
          kPrompt, greedy(), [](int64_t) { return true; });
      EXPECT_EQ(ids, answer.ids) << ranks << " ranks";
    });
  }
}

/// Returns two micro batches of two rows each, in which some tokens have a target, and
/// another token is given for the same places.
std::vector<data::TokenBatch> batches_of(const data::TokenSource& source) {
  std::vector<data::TokenBatch> batches(2);
  for (int64_t b = 0; b < 2; ++b) {
    data::TokenBatch& batch = batches[static_cast<size_t>(b)];
    source.shape(batch, 2);
    for (int64_t row = 0; row < 2; ++row) source.read(2 * b + row, batch, row);
    for (size_t i = 0; i < batch.targets[0].size(); ++i) {
      if (i % 5 != 0 && i % 32 < 20) batch.targets[0][i] = data::kIgnore;
    }
    batch.targets.push_back(batch.targets[0]);
    for (int32_t& target : batch.targets[1]) target = target < 0 ? target : target / 2;
  }
  return batches;
}

/// Returns the scores that follow from the logits of the whole model, in fp64.
std::vector<TokenScore> scores_of(const models::Model& model,
                                  std::vector<data::TokenBatch> batches) {
  const at::NoGradGuard no_grad;
  std::vector<TokenScore> scores;
  for (data::TokenBatch& batch : batches) {
    nn::ForwardContext context;
    context.batch = batch_of(batch, 0, batch.num_sequences, at::kCPU);
    const at::Tensor logits = model.logits(model.hidden({}, context)[0]);
    const at::Tensor log_p = at::log_softmax(logits.to(at::kDouble), 1);
    for (size_t i = 0; i < batch.targets[0].size(); ++i) {
      if (batch.targets[0][i] < 0) continue;
      const at::Tensor row = log_p[static_cast<int64_t>(i)];
      for (const std::vector<int32_t>& term : batch.targets) {
        scores.push_back({row[term[i]].item<float>(), row.max().item<float>(),
                          row.argmax().item<int64_t>()});
      }
    }
  }
  return scores;
}

TEST(TokenScorer, GivesTheLogProbabilitiesOfTheLogitsInAnyLayout) {
  const testing::TempDir dir;
  const ModelConfig config = write_model(dir.path());
  const auto model = whole_model(config);
  const auto data = data::synthetic_source(4, kLength, config.vocab_size, 1);
  std::vector<data::TokenBatch> batches = batches_of(*data);
  // One given token is the likeliest, which random tokens hardly are.
  const auto first = static_cast<int32_t>(scores_of(*model, batches)[0].best);
  batches[0].targets[0][0] = first;
  const std::vector<TokenScore> want = scores_of(*model, batches);
  ASSERT_GT(want.size(), 120U);
  ASSERT_EQ(want[0].best, first);
  for (const ParallelSection& parallel : {split(1, 1, 1), split(3, 1, 1), split(1, 2, 1),
                                          split(1, 1, 2), split(2, 2, 2, true)}) {
    const auto ranks = static_cast<int>(parallel.tp * parallel.pp * parallel.cp);
    comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
      const auto weights = checkpoint::as_parameters(
          checkpoint::WeightsSource::open(dir.path(), *world), config.description);
      const Session session =
          load_for_inference(settings_of(dir.path(), parallel), *weights, world);
      TokenScorer scorer(session);
      for (int again = 0; again < 2; ++again) {
        std::vector<data::TokenBatch> mine = batches;
        const std::vector<TokenScore> found = scorer.score(mine);
        ASSERT_EQ(found.size(), want.size()) << ranks << " ranks";
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_NEAR(found[i].log_prob, want[i].log_prob, 1e-4) << i;
          EXPECT_NEAR(found[i].best_log_prob, want[i].best_log_prob, 1e-4) << i;
          EXPECT_EQ(found[i].best, want[i].best) << i;
        }
      }
    });
  }
}

/// Prompts of different lengths, with settings that differ too.
std::vector<Continuation> continuations() {
  std::vector<Continuation> all = {{kPrompt, greedy()},
                                   {{7}, greedy()},
                                   {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, greedy()},
                                   {{50, 60}, greedy(), 3, true}};
  all[1].sampling.temperature = 0.9;
  all[1].sampling.seed = 3;
  all[2].sampling.max_new_tokens = 4;
  all[2].scores = true;
  return all;
}

/// What became of a sequence.
struct Continued {
  std::vector<int64_t> ids;
  std::vector<ChosenToken> tokens;
  std::vector<TokenScore> scores;
};

/// Continues sequences together; each leaves when it has all its tokens.
std::vector<Continued> continued(SequenceRunner& runner,
                                 const std::vector<Continuation>& sequences) {
  std::vector<Continued> all(sequences.size());
  std::vector<ChosenToken> tokens = runner.begin(sequences);
  std::vector<TokenScore> scores = runner.take_scores();
  auto from = scores.begin();
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!sequences[i].scores) continue;
    const auto count = std::ssize(sequences[i].prompt) - 1;
    all[i].scores.assign(from, from + count);
    from += count;
  }
  EXPECT_EQ(from, scores.end());
  std::vector<size_t> open(sequences.size());
  std::iota(open.begin(), open.end(), size_t{0});
  while (true) {
    std::vector<size_t> places, left;
    for (size_t place = 0; place < open.size(); ++place) {
      Continued& one = all[open[place]];
      one.ids.push_back(tokens[place].id);
      one.tokens.push_back(tokens[place]);
      if (std::ssize(one.ids) == sequences[open[place]].sampling.max_new_tokens) continue;
      places.push_back(place);
      left.push_back(open[place]);
    }
    if (left.empty()) return all;
    if (left.size() < open.size()) runner.keep(places);
    open = left;
    tokens = runner.next();
  }
}

TEST(SequenceRunner, ContinuesEachSequenceAsIfItWereAlone) {
  const testing::TempDir dir;
  const ModelConfig config = write_model(dir.path());
  const std::vector<Continuation> sequences = continuations();
  std::vector<Continued> alone;
  for (const ParallelSection& parallel :
       {split(1, 1, 1), split(2, 1, 1), split(1, 2, 1), split(2, 2, 1)}) {
    const auto ranks = static_cast<int>(parallel.tp * parallel.pp);
    comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
      const auto weights = checkpoint::as_parameters(
          checkpoint::WeightsSource::open(dir.path(), *world), config.description);
      const Session session =
          load_for_inference(settings_of(dir.path(), parallel), *weights, world);
      SequenceRunner runner(session);
      if (ranks == 1) {
        for (const Continuation& one : sequences) {
          alone.push_back(continued(runner, {one})[0]);
        }
      }
      const std::vector<Continued> together = continued(runner, sequences);
      for (size_t i = 0; i < sequences.size(); ++i) {
        EXPECT_EQ(together[i].ids, alone[i].ids) << "sequence " << i;
        ASSERT_EQ(together[i].scores.size(), alone[i].scores.size());
        for (size_t k = 0; k < alone[i].scores.size(); ++k) {
          EXPECT_NEAR(together[i].scores[k].log_prob, alone[i].scores[k].log_prob, 1e-4);
          EXPECT_EQ(together[i].scores[k].best, alone[i].scores[k].best);
        }
      }
      // The last sequence asks for the three likeliest ids, and is greedy.
      for (const ChosenToken& token : together[3].tokens) {
        ASSERT_EQ(token.top.size(), 3U);
        EXPECT_EQ(token.top[0].second, token.log_prob);
        EXPECT_GE(token.top[0].second, token.top[1].second);
      }
      EXPECT_TRUE(together[0].tokens[0].top.empty());
    });
  }
}

TEST(SequenceRunner, ScoresAPromptAsTokenScorerDoes) {
  const testing::TempDir dir;
  const ModelConfig config = write_model(dir.path());
  const auto world = comm::self_world("one");
  const auto weights = checkpoint::as_parameters(
      checkpoint::WeightsSource::open(dir.path(), *world), config.description);
  const Session session =
      load_for_inference(settings_of(dir.path(), split(1, 1, 1)), *weights, world);
  SequenceRunner runner(session);
  Continuation prompt{kPrompt, {}, 1, true};
  prompt.sampling.max_new_tokens = 0;
  runner.begin({prompt});
  const std::vector<TokenScore> found = runner.take_scores();
  std::vector<data::TokenBatch> batches(1);
  batches[0].resize(1, std::ssize(kPrompt));
  for (size_t i = 0; i < kPrompt.size(); ++i) {
    batches[0].tokens[i] = static_cast<int32_t>(kPrompt[i]);
    batches[0].positions[i] = static_cast<int32_t>(i);
    batches[0].document_start[i] = 0;
    batches[0].targets[0][i] =
        i + 1 < kPrompt.size() ? static_cast<int32_t>(kPrompt[i + 1]) : data::kIgnore;
  }
  const std::vector<TokenScore> want = TokenScorer(session).score(batches);
  ASSERT_EQ(found.size(), kPrompt.size() - 1);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(found[i].log_prob, want[i].log_prob);
    EXPECT_EQ(found[i].best_log_prob, want[i].best_log_prob);
  }
}

/// What a server says of its sequences, one list of events for each step.
using Steps = std::vector<Json>;

serve::Sequence sequence_of(uint64_t number, std::vector<int64_t> prompt,
                            int64_t max_tokens) {
  serve::Sequence sequence;
  sequence.number = number;
  sequence.prompt = std::move(prompt);
  sequence.max_tokens = max_tokens;
  return sequence;
}

size_t ended(const Steps& steps) {
  size_t count = 0;
  for (const Json& step : steps) {
    for (const Json& event : step) count += event.contains("end") ? 1 : 0;
  }
  return count;
}

/// Returns how many tokens each sequence has got.
std::map<uint64_t, int64_t> made(const Steps& steps) {
  std::map<uint64_t, int64_t> counts;
  for (const Json& step : steps) {
    for (const Json& event : step) {
      counts[event["number"].get<uint64_t>()] += event.contains("id") ? 1 : 0;
    }
  }
  return counts;
}

/// The place of longhaul-serve, on rank 0.
struct Client {
  Client() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    of_rank = Descriptor(ends[0]);
    of_client = Descriptor(ends[1]);
    queue = std::make_unique<serve::SequenceQueue>(of_rank.get());
  }
  void send(const Json& message) const {
    system::send_text(of_client.get(), json_text(message));
  }
  /// Takes what the server has said.
  const Steps& hear() {
    char probe = 0;
    std::string text;
    while (::recv(of_client.get(), &probe, 1, MSG_PEEK | MSG_DONTWAIT) > 0 &&
           system::receive_text(of_client.get(), text, 1 << 20)) {
      steps.push_back(Json::parse(text));
    }
    return steps;
  }
  /// Serves these sequences until `is_over` says so, which is asked often.
  Steps run(const Session& session, const std::vector<serve::Sequence>& sequences,
            const std::function<bool(const Steps&)>& is_over) {
    Json list = Json::array();
    for (const serve::Sequence& one : sequences) list.push_back(one.json());
    send({{"sequences", std::move(list)}});
    serve_sequences(session, queue.get(), {},
                    [&] { return std::string(is_over(hear()) ? "it is over" : ""); });
    return hear();
  }
  Descriptor of_rank, of_client;
  std::unique_ptr<serve::SequenceQueue> queue;
  Steps steps;
};

/// Calls `work` with a session of two ranks of tp on rank 0; the other one serves along.
void on_two_ranks(const fs::path& dir,
                  const std::function<void(const Session& session)>& work) {
  const ModelConfig config = load_model_config(dir / "config.json", {});
  comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
    const auto weights = checkpoint::as_parameters(
        checkpoint::WeightsSource::open(dir, *world), config.description);
    const Session session =
        load_for_inference(settings_of(dir, split(2, 1, 1)), *weights, world);
    if (world->rank() > 0) return serve_sequences(session, nullptr, {}, {});
    work(session);
  });
}

TEST(ServeSequences, ComputesWhatWaitsTogetherAndTellsEachStep) {
  const testing::TempDir dir;
  write_model(dir.path());
  on_two_ranks(dir.path(), [](const Session& session) {
    const Steps steps = Client().run(
        session,
        {sequence_of(1, {9}, 2), sequence_of(2, {9, 9}, 3), sequence_of(3, {9, 9, 9}, 4)},
        [](const Steps& said) { return ended(said) >= 3; });
    EXPECT_EQ(made(steps), (std::map<uint64_t, int64_t>{{1, 2}, {2, 3}, {3, 4}}));
    EXPECT_EQ(steps[0].size(), 3U) << "what waits is computed together";
    EXPECT_EQ(steps.size(), 4U);
  });
}

TEST(ServeSequences, EndsWhatIsRunningWhenTheServerEnds) {
  const testing::TempDir dir;
  write_model(dir.path());
  on_two_ranks(dir.path(), [](const Session& session) {
    const Steps steps =
        Client().run(session, {sequence_of(1, {9}, 20), sequence_of(2, {8}, 20)},
                     [](const Steps& said) { return said.size() >= 3; });
    EXPECT_EQ(made(steps), (std::map<uint64_t, int64_t>{{1, 3}, {2, 3}}));
    EXPECT_EQ(ended(steps), 0U);
  });
}

TEST(ServeSequences, LeavesOutWhatNobodyWaitsForAnyMore) {
  const testing::TempDir dir;
  write_model(dir.path());
  on_two_ranks(dir.path(), [](const Session& session) {
    Client client;
    bool is_sent = false;
    const auto is_over = [&](const Steps& said) {
      if (said.size() == 2 && !std::exchange(is_sent, true)) {
        client.send({{"cancel", 2}});
        while (!client.queue->is_cancelled(2)) std::this_thread::yield();
      }
      return ended(said) >= 1;
    };
    const Steps steps =
        client.run(session, {sequence_of(1, {9}, 20), sequence_of(2, {8}, 20)}, is_over);
    EXPECT_EQ(made(steps), (std::map<uint64_t, int64_t>{{1, 20}, {2, 2}}));
  });
}

TEST(ServeSequences, TellsTheTokenThatStopsASequence) {
  const testing::TempDir dir;
  const auto model = whole_model(write_model(dir.path()));
  const int64_t stop =
      infer::testing::next_id_of(*model, greedy(), kLength)(kPrompt, /*step=*/0);
  on_two_ranks(dir.path(), [&](const Session& session) {
    serve::Sequence sequence = sequence_of(1, kPrompt, 3);
    sequence.stop_ids = {stop};
    sequence.top = 1;
    sequence.scores = true;
    const Steps steps = Client().run(session, {sequence},
                                     [](const Steps& said) { return ended(said) >= 1; });
    ASSERT_EQ(steps.size(), 2U);
    EXPECT_EQ(steps[0][0]["scores"].size(), kPrompt.size() - 1);
    const Json& last = steps[1][0];
    EXPECT_EQ(last["id"], stop);
    EXPECT_EQ(last["end"], "stop");
    EXPECT_EQ(last["top"][0][0], stop);
    EXPECT_EQ(last["top"][0][1], last["log_prob"]);
  });
}

TEST(ServeSequences, NameTheLowestOfTokensThatTieAsTheGreedyOne) {
  const testing::TempDir dir;
  write_model(dir.path(), "lm_head.weight");  // all tokens have the logit 0
  on_two_ranks(dir.path(), [](const Session& session) {
    serve::Sequence sequence = sequence_of(1, {9, 0, 5}, 0);
    sequence.top = 1;
    sequence.scores = true;
    const Steps steps = Client().run(session, {sequence},
                                     [](const Steps& said) { return ended(said) >= 1; });
    const Json& scores = steps.at(0)[0]["scores"];
    EXPECT_EQ(scores[0][0], scores[0][1]) << "0 is the greedy token";
    EXPECT_LT(scores[1][0].get<float>(), scores[1][1].get<float>()) << "5 is not";
    EXPECT_EQ(scores[1][2], 0);
    EXPECT_NEAR(scores[1][0].get<float>(), scores[1][1].get<float>(), 1e-6);
  });
}

}  // namespace
}  // namespace longhaul::session
