// Tests that a run holds and sends what a layout's description says of each rank and
// step, to the byte.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <map>
#include <utility>

#include "longhaul/comm/ledger.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/layout/rank_costs.h"
#include "longhaul/train/start/data_feed.h"
#include "tests/dist/counted_memory.h"
#include "tests/dist/tiny_models.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

using testing::CountedMemory;

struct CostCase {
  int ranks = 1;
  std::vector<std::string> sets;
  std::string family = "llama";
  bool tied = false;
};

std::string text_of(const CostCase& c) {
  return fmt::format("{} ranks, {}{}: {}", c.ranks, c.family, c.tied ? " tied" : "",
                     fmt::join(c.sets, " "));
}

RunConfig config_of(const CostCase& c) {
  const fs::path dir = fs::path(::testing::TempDir()) / "layout_costs";
  const fs::path file = dir / fmt::format("{}{}.json", c.family, c.tied ? "_tied" : "");
  fs::create_directories(dir);
  write_text_atomic(file, testing::tiny_config(c.family, c.tied).dump());
  std::vector<std::string> sets = {fmt::format("run.dir={}", (dir / "run").string()),
                                   fmt::format("model.config={}", file.string()),
                                   "run.threads=1",
                                   "data.seq_len=32",
                                   "data.train=[{synthetic=64}]",
                                   "batch.micro_size=2",
                                   "batch.global_size=16"};
  sets.insert(sets.end(), c.sets.begin(), c.sets.end());
  return accepted("", sets).config;
}

/// {group, operation} -> {calls, bytes}.
using Sent = std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>>;

/// Returns what the ledger has counted since `before`.
Sent sent_since(const Sent& before, comm::Communicator& world) {
  Sent sent;
  for (const auto& [group, counts] : world.ledger().counts()) {
    for (size_t i = 0; i < comm::kVerbs; ++i) {
      const auto verb = static_cast<comm::Verb>(i);
      const std::pair key(group, comm::verb_name(verb));
      const auto was = before.find(key);
      const bool known = was != before.end();
      const int64_t calls = counts[verb].calls - (known ? was->second.first : 0);
      const int64_t bytes = counts[verb].bytes - (known ? was->second.second : 0);
      if (calls != 0 || bytes != 0) sent[key] = {calls, bytes};
    }
  }
  return sent;
}

Sent described_sent(const layout::Traffic& traffic) {
  Sent sent;
  for (const layout::TrafficLine& line : traffic.lines()) {
    auto& [calls, bytes] =
        sent[{layout::group_name(line.group), layout::verb_name(line.verb)}];
    calls += line.calls;
    bytes += line.bytes;
  }
  return sent;
}

std::string text_of(const Sent& sent) {
  std::string text;
  for (const auto& [key, count] : sent) {
    text += fmt::format("\n  {} {}: {} calls, {} bytes", key.first, key.second,
                        count.first, count.second);
  }
  return text;
}

/// A rank's stage, with what it holds looked at around every action.
class WatchedStage : public parallel::PipelineStage {
 public:
  WatchedStage(session::StageRunner& stage, const layout::Passes& passes,
               const ModelDescription& model, const layout::LayoutDescription& layout,
               const layout::MeshIndex& at)
      : stage_(stage),
        boundary_(passes.boundary_bytes()),
        put_off_(layout.pipeline == PipelineKind::ZeroBubbleH1 &&
                 !layout.tensor.sequence && !ends_with_norm(model)) {
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      chunks_.push_back(layout::chunk_bytes(passes, model, layout, at, chunk));
      specs_.push_back(layout.stage(layout::rank_at(layout.shape, at), chunk));
    }
  }

  parallel::Shapes boundary_shapes(int64_t micro_batch) override {
    return stage_.boundary_shapes(micro_batch);
  }
  nn::Tensors forward(int64_t chunk, int64_t micro_batch,
                      const nn::Tensors& input) override {
    const int64_t before = CountedMemory::live();
    nn::Tensors y = stage_.forward(chunk, micro_batch, input);
    const StageSpec& spec = specs_.at(static_cast<size_t>(chunk));
    // The input lived before the forward and counts as kept by it. The result goes to
    // another stage and does not count.
    const int64_t in = spec.embedding ? 0 : boundary_;
    const int64_t out = spec.head ? 0 : boundary_;
    const int64_t kept = CountedMemory::live() - before + in - out;
    EXPECT_EQ(kept, chunks_.at(static_cast<size_t>(chunk)).forward.total())
        << "forward of chunk " << chunk;
    hold(kept);
    return y;
  }
  nn::Tensors backward(int64_t chunk, int64_t micro_batch,
                       const nn::Tensors& grads) override {
    const int64_t before = CountedMemory::live();
    nn::Tensors dx = stage_.backward(chunk, micro_batch, grads);
    const StageSpec& spec = specs_.at(static_cast<size_t>(chunk));
    // A unit that waits for its weight gradient may hold the gradient that came from
    // outside.
    const int64_t in = put_off_ && !spec.head ? boundary_ : 0;
    const int64_t change = CountedMemory::live() - before + in;
    const layout::ChunkBytes& bytes = chunks_.at(static_cast<size_t>(chunk));
    EXPECT_EQ(change, bytes.backward.total() - bytes.forward.total())
        << "backward of chunk " << chunk;
    hold(change);
    return dx;
  }
  void weight_gradients(int64_t chunk, int64_t micro_batch) override {
    const int64_t before = CountedMemory::live();
    stage_.weight_gradients(chunk, micro_batch);
    const int64_t kept = chunks_.at(static_cast<size_t>(chunk)).backward.total();
    // The gradient of the input may still be on its way.
    const bool sent = !specs_.at(static_cast<size_t>(chunk)).embedding;
    const int64_t freed = before - CountedMemory::live();
    EXPECT_TRUE(freed == kept || (sent && freed == kept - boundary_))
        << freed << " of " << kept;
    hold(-kept);
  }

  int64_t peak() const { return peak_; }
  int64_t left() const { return live_; }

 private:
  /// Returns whether blocks end with a norm of the sum, as in BERT. The gradient of the
  /// sum is then another tensor than the gradient of the block's result.
  static bool ends_with_norm(const ModelDescription& model) { return !model.is_causal(); }

  void hold(int64_t change) {
    live_ += change;
    peak_ = std::max(peak_, live_);
  }

  session::StageRunner& stage_;
  int64_t boundary_;
  bool put_off_;
  std::vector<layout::ChunkBytes> chunks_;
  std::vector<StageSpec> specs_;
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

/// Trains a step with these scales of the terms of the loss.
void train_step(train::TrainingSession& session, data::Loader& loader,
                session::StageRunner& runner, parallel::PipelineStage& stage,
                std::vector<double> scales) {
  data::StepBatch& batch = loader.next();
  session.layout().take_own_positions(batch.micro_batches);
  session.flat().zero_grads();
  runner.begin_step(batch.micro_batches, std::move(scales));
  const layout::PipelinePlan plan = session.layout().description().training_plan();
  runner.begin_plan(plan, session.mesh().index().pp);
  parallel::execute(
      plan, stage, session.layout().boundaries(),
      {tensor::to_scalar_type(session.machine().policy.compute), session.device()});
  runner.end_plan();
  session.optimizer().step(1e-3, 1.0, session.world());
  session.replicas().share_weights(parallel::DataParallel::Written::Trained);
  session.replicas().finish_weights();
}

/// Runs two steps and checks the second step. The first step takes memory that stays.
void run_rank(const RunConfig& config, const layout::LayoutCosts& costs,
              const std::shared_ptr<comm::Communicator>& world) {
  system::Logger quiet;
  train::TrainingSession session = train::build_session(config, world, quiet);
  const layout::RankCosts& mine = costs.of(world->rank());
  data::Loader loader(session.data().train, train::loader_options(session, false));
  session::StageRunner runner(session.chunks(), session.replicas(),
                              session::stage_options(session));
  train::initialise_weights(session.state(), 1);
  session.replicas().share_weights();
  const std::vector<double> scales(session.model().description.losses.size(), 1e-3);
  train_step(session, loader, runner, runner, scales);
  const ModelDescription& model = session.model().description;
  WatchedStage watched(
      runner,
      layout::passes_of(config, model, session.layout().description(), config.run.device),
      model, session.layout().description(), session.mesh().index());
  const Sent before = sent_since({}, *world);
  train_step(session, loader, runner, watched, scales);
  const Sent sent = sent_since(before, *world);
  EXPECT_EQ(sent, described_sent(mine.traffic))
      << "rank " << world->rank() << " has sent" << text_of(sent) << "\ndescribed"
      << text_of(described_sent(mine.traffic));
  EXPECT_EQ(watched.peak(), mine.activations.in_flight.total());
  EXPECT_EQ(watched.left(), 0);
}

void check_costs(const CostCase& c) {
  SCOPED_TRACE(text_of(c));
  CountedMemory::install();
  const RunConfig config = config_of(c);
  const ModelConfig model =
      load_model_config(config.model.config, config.model.override_);
  const layout::LayoutDescription layout =
      layout::describe_layout(config, model.description, c.ranks);
  const layout::LayoutCosts costs(config, model.description, layout);
  comm::run_fake_ranks(c.ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
    run_rank(config, costs, world);
  });
}

TEST(LayoutCosts, OfDataParallelismAreThoseOfARun) {
  for (const std::string zero : {"0", "1", "2", "3"}) {
    for (const bool tied : {false, true}) {
      check_costs({2, {"parallel.zero=" + zero}, "llama", tied});
    }
    check_costs({4, {"parallel.zero=" + zero, "precision.reduce=bf16"}, "qwen2"});
    check_costs({8,
                 {"parallel.zero=" + zero, "batch.micro_size=1",
                  zero == "0" ? "run.seed=1" : "parallel.shard_group=2"},
                 "qwen3"});
  }
  // The first value of memory.gathered_gb has room for every unit, the second one only
  // for some units.
  for (const std::string room : {"0.001", "0.00012"}) {
    check_costs({4, {"parallel.zero=3", "memory.gathered_gb=" + room}});
    check_costs({4, {"parallel.zero=3", "parallel.pp=2", "memory.gathered_gb=" + room}});
  }
}

TEST(LayoutCosts, OfTensorParallelismAreThoseOfARun) {
  for (const std::string sequence : {"true", "false"}) {
    const std::string key = "parallel.sequence=" + sequence;
    for (const std::string again : {"none", "selective", "full"}) {
      check_costs({2, {"parallel.tp=2", key, "memory.recompute=" + again}, "qwen3"});
    }
    // These messages are above and below the size that goes in one round.
    check_costs(
        {2, {"parallel.tp=2", key, "precision.compute=fp32", "data.seq_len=256"}});
    // Two ranks hold each key head.
    check_costs({4, {"parallel.tp=4", key}, "qwen2"});
    check_costs({4, {"parallel.tp=4", key, "precision.compute=fp32", "run.fused=false"}});
    check_costs({8, {"parallel.tp=4", key, "parallel.zero=3"}, "llama", true});
    check_costs({4, {"parallel.tp=2", key, "parallel.zero=1"}, "gpt_neox"});
    check_costs({4, {"parallel.tp=2", key, "parallel.zero=3"}, "bert", true});
    check_costs({4, {"parallel.tp=4", key, "memory.recompute=full"}, "bert", true});
  }
}

TEST(LayoutCosts, OfGradientsThatTheFirstRankSendsAreThoseOfARun) {
  // The gradients go down a tree, and with all layers they go in parts.
  for (const std::string layers : {"1", "4"}) {
    for (const std::string tp : {"3", "6"}) {
      check_costs({std::stoi(tp),
                   {"parallel.tp=" + tp, "parallel.sequence=false",
                    "model.override.num_hidden_layers=" + layers}});
    }
  }
  check_costs({4,
               {"parallel.tp=2", "parallel.sequence=false", "precision.gradients=bf16",
                "parallel.zero=3"},
               "gpt2"});
}

TEST(LayoutCosts, OfALossInSeveralPiecesAreThoseOfARun) {
  // 192 tokens; 111 rows of the logits exist at once.
  check_costs({2,
               {"parallel.tp=2", "model.override.vocab_size=300000",
                "model.override.hidden_size=8", "data.seq_len=96", "batch.global_size=2"},
               "llama",
               true});
}

TEST(LayoutCosts, OfPipelinesAreThoseOfARun) {
  const std::vector<std::vector<std::string>> kinds = {
      {"parallel.pipeline=gpipe"},
      {"parallel.pipeline=1f1b"},
      {"parallel.pipeline=zb-h1"},
      {"parallel.pipeline=interleaved", "parallel.virtual_stages=2"}};
  for (const auto& kind : kinds) {
    for (const std::string again : {"none", "selective", "full"}) {
      CostCase c{2, {"parallel.pp=2", "memory.recompute=" + again}, "llama", true};
      c.sets.insert(c.sets.end(), kind.begin(), kind.end());
      check_costs(c);
    }
    CostCase both_heads{4, {"parallel.pp=2", "parallel.tp=2"}, "bert", true};
    both_heads.sets.insert(both_heads.sets.end(), kind.begin(), kind.end());
    check_costs(both_heads);
    CostCase split{8, {"parallel.pp=2", "parallel.tp=2", "parallel.zero=1"}, "qwen3"};
    split.sets.insert(split.sets.end(), kind.begin(), kind.end());
    check_costs(split);
    split.sets.emplace_back("parallel.sequence=false");
    split.sets.emplace_back("run.fused=false");
    check_costs(split);
  }
  check_costs({4, {"parallel.pp=4", "parallel.pipeline=zb-h1"}, "qwen2", true});
  check_costs({4, {"parallel.pp=2", "parallel.zero=3"}, "gpt_neox", true});
  for (const std::string zero : {"2", "3"}) {
    for (const auto& kind : kinds) {
      for (const std::string family : {"llama", "bert"}) {
        CostCase c{4, {"parallel.pp=2", "parallel.zero=" + zero}, family, true};
        c.sets.insert(c.sets.end(), kind.begin(), kind.end());
        check_costs(c);
      }
    }
  }
  check_costs(
      {2, {"parallel.pp=2", "memory.recompute=full", "memory.recompute_layers=1"}});
}

TEST(LayoutCosts, OfSplitSequencesAreThoseOfARun) {
  for (const std::string context : {"ring", "gather"}) {
    const std::string key = "parallel.context=" + context;
    for (const std::string again : {"none", "selective", "full"}) {
      check_costs({2, {"parallel.cp=2", key, "memory.recompute=" + again}});
    }
    check_costs({4, {"parallel.cp=4", key, "parallel.zero=2"}, "qwen3"});
    check_costs({4, {"parallel.cp=4", key, "parallel.zero=3"}, "mistral"});
    check_costs({2, {"parallel.cp=2", key, "data.seq_len=128"}, "bert", true});
    check_costs({8, {"parallel.cp=2", "parallel.tp=2", "parallel.pp=2", key}, "qwen2"});
  }
}

/// Under full recomputation a layer adds its loads up over cp once more where the term
/// has a gradient, and never where no gradients are computed.
TEST(RouterTerms, AreAddedUpOverRanksWhereTheyAreReadOrHaveAGradient) {
  const RunConfig config =
      config_of({2, {"parallel.cp=2", "memory.recompute=full"}, "mixtral"});
  const int64_t layers = 4, micro_batches = 8;
  comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
    system::Logger quiet;
    train::TrainingSession session = train::build_session(config, world, quiet);
    data::Loader loader(session.data().train, train::loader_options(session, false));
    session::StageRunner runner(session.chunks(), session.replicas(),
                                session::stage_options(session));
    train::initialise_weights(session.state(), 1);
    session.replicas().share_weights();
    session.replicas().finish_weights();
    const auto added_up = [&](const auto& pass) {
      const Sent before = sent_since({}, *world);
      pass();
      const Sent sent = sent_since(before, *world);
      const auto found = sent.find({"cp", "all_reduce"});
      return found == sent.end() ? 0 : found->second.first;
    };
    for (const double weight : {0.0, 1e-3}) {
      EXPECT_EQ(added_up([&] {
                  train_step(session, loader, runner, runner, {1e-3, weight, weight});
                }),
                (weight > 0.0 ? 2 : 1) * layers * micro_batches);
    }
    auto& batches = loader.next().micro_batches;
    session.layout().take_own_positions(batches);
    EXPECT_EQ(added_up([&] { session::run_forward(session, runner, batches); }), 0);
  });
}

}  // namespace
}  // namespace longhaul
