// A bit that flips in one of several copies is found, whichever ranks hold the copies:
// of weights, masters and moments.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "longhaul/tensor/flat_pieces.h"
#include "longhaul/train/proof/replica_check.h"
#include "tests/dist/tiny_models.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/settings.h"

namespace longhaul::train {
namespace {

constexpr const char* kNorm = "model.norm.weight";
constexpr const char* kHeadNorm = "model.layers.3.self_attn.q_norm.weight";
constexpr const char* kKeys = "model.layers.0.self_attn.k_proj.weight";
constexpr const char* kKeyBias = "model.layers.3.self_attn.k_proj.bias";
constexpr const char* kTable = "model.embed_tokens.weight";

struct CopyCase {
  int ranks;
  std::vector<std::string> sets;
  std::string family;
  bool tied;
  int flipped;             ///< the rank whose memory changes
  std::string what;        ///< "weight", "master", "exp_avg" or "exp_avg_sq"
  std::string tensor;      ///< in which it changes
  std::vector<int> named;  ///< the ranks that the check names; empty: none
};

RunConfig config_of(const CopyCase& c) {
  const fs::path dir = fs::path(::testing::TempDir()) / "copies";
  const fs::path file = dir / fmt::format("{}{}.json", c.family, c.tied ? "_tied" : "");
  fs::create_directories(dir);
  write_text_atomic(file, testing::tiny_config(c.family, c.tied).dump());
  std::vector<std::string> sets = {fmt::format("run.dir={}", (dir / "run").string()),
                                   fmt::format("model.config={}", file.string()),
                                   "run.threads=1",
                                   "data.seq_len=32",
                                   "data.train=[{synthetic=64}]",
                                   "batch.micro_size=1",
                                   "batch.global_size=8"};
  sets.insert(sets.end(), c.sets.begin(), c.sets.end());
  return accepted("", sets).config;
}

/// Flips a bit of the first element of the tensor that this rank holds.
void flip(const TrainingSession& session, const std::string& what,
          const std::string& tensor) {
  for (size_t i = 0; i < session.flat().buckets().size(); ++i) {
    const tensor::Bucket& bucket = session.flat().buckets()[i];
    const optim::BucketState& own = session.optimizer().states()[i];
    for (const tensor::FlatPiece& piece : tensor::pieces_in(bucket, bucket.owned)) {
      if (piece.member->parameter->name() != tensor) continue;
      const at::Tensor& values = what == "weight"    ? bucket.owned_weights
                                 : what == "master"  ? own.master
                                 : what == "exp_avg" ? own.exp_avg
                                                     : own.exp_avg_sq;
      auto* bytes = static_cast<std::byte*>(values.data_ptr());
      bytes[(piece.in_bucket - bucket.owned.begin) * values.element_size()] ^=
          std::byte{1};
      return;
    }
  }
  ADD_FAILURE() << "rank " << session.world().rank() << " holds nothing of " << tensor;
}

void check_rank(const CopyCase& c, const RunConfig& config,
                const std::shared_ptr<comm::Communicator>& world) {
  system::Logger quiet;
  TrainingSession session = build_session(config, world, quiet);
  initialise_weights(session.state(), 1);
  session.replicas().share_weights();
  Json told;
  ReplicaCheck check(session, 1, [&](const Json& fields) { told = fields; });
  check.run(1, /*must=*/false);
  EXPECT_TRUE(told.is_null()) << "rank " << world->rank() << ", before: " << told;
  if (world->rank() == c.flipped) flip(session, c.what, c.tensor);
  std::string message;
  try {
    check.run(2, /*must=*/false);
  } catch (const TemporaryError& error) {
    message = error.what();
  }
  if (c.named.empty()) {
    EXPECT_EQ(message, "");
    return;
  }
  EXPECT_EQ(told, (Json{{"step", 2},
                        {"ranks", c.named},
                        {"tensor", fmt::format("{} of {}", c.what, c.tensor)}}));
  const std::string named =
      fmt::format("rank {} in {} of {};", fmt::join(c.named, ", "), c.what, c.tensor);
  EXPECT_NE(message.find(named), std::string::npos) << message;
  EXPECT_EQ(message.find("nobody can say") != std::string::npos, c.named.size() > 1)
      << message;
}

void check(const CopyCase& c) {
  SCOPED_TRACE(fmt::format("{} ranks, {}{}, {}: {} of {} on rank {}", c.ranks, c.family,
                           c.tied ? " tied" : "", fmt::join(c.sets, " "), c.what,
                           c.tensor, c.flipped));
  const RunConfig config = config_of(c);
  comm::run_fake_ranks(c.ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
    check_rank(c, config, world);
  });
}

const std::string kTwo = "parallel.tp=2";
const std::string kFour = "parallel.tp=4";
const std::string kWhole = "parallel.sequence=false";
const std::string kStages = "parallel.pp=2";

TEST(Copies, WhatEachRankOfTensorParallelismHoldsIsCompared) {
  check({2, {kTwo, kWhole}, "llama", false, 1, "weight", kNorm, {0, 1}});
  check({2, {kTwo}, "llama", false, 0, "master", kNorm, {0, 1}});
  check({2, {kTwo, kWhole}, "qwen3", false, 1, "exp_avg", kHeadNorm, {0, 1}});
  check({2,
         {kTwo, kWhole},
         "gpt2",
         true,
         1,
         "exp_avg_sq",
         "transformer.h.3.mlp.down_proj.bias",
         {0, 1}});
  check({4, {kFour, kWhole}, "llama", false, 2, "weight", kNorm, {2}});
}

TEST(Copies, KeyHeadsThatSeveralRanksHoldAreCompared) {
  check({4, {kFour}, "qwen2", false, 3, "weight", kKeys, {2, 3}});
  check({4, {kFour, kWhole}, "qwen2", false, 0, "exp_avg", kKeyBias, {0, 1}});
  // Three ranks hold one head, and three the other.
  check({6, {"parallel.tp=6", kWhole}, "llama", false, 4, "master", kKeys, {4}});
}

TEST(Copies, AnEmbeddingTiedOverStagesIsCompared) {
  check({2, {kStages}, "llama", true, 1, "weight", kTable, {0, 1}});
  check({4, {kStages, "parallel.zero=3"}, "llama", true, 2, "weight", kTable, {0, 2}});
  check({4, {"parallel.pp=4"}, "llama", true, 0, "exp_avg", kTable, {0, 3}});
  check({8,
         {kStages, kTwo, "parallel.zero=1"},
         "llama",
         true,
         6,
         "exp_avg_sq",
         kTable,
         {2, 6}});
}

TEST(Copies, OfSeveralKindsOfCopiesNobodyIsNamedWhoAgreesWithAny) {
  check({4, {kTwo, "parallel.zero=0"}, "llama", false, 3, "weight", kNorm, {3}});
  check({4, {kTwo, kWhole, "parallel.cp=2"}, "llama", false, 1, "weight", kNorm, {1}});
  // Shards are copies of the other tp rank's shards alone.
  check({4, {kTwo, "parallel.zero=3"}, "llama", false, 0, "master", kNorm, {0, 1}});
}

TEST(Copies, WhatOneRankAloneHoldsCannotBeCompared) {
  const std::string split = "model.layers.0.mlp.up_proj.weight";
  check({2, {kTwo, kWhole}, "llama", false, 1, "weight", split, {}});
  check({2, {kStages}, "llama", false, 1, "weight", kNorm, {}});
}

}  // namespace
}  // namespace longhaul::train
