#include "longhaul/session/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "longhaul/base/process.h"
#include "longhaul/families/model_config.h"
#include "longhaul/layout/rank_costs.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/settings.h"

namespace longhaul::session {
namespace {

using Values = std::vector<int32_t>;
using data::kIgnore;

/// Returns two sequences of 8 positions, with targets by position and by sequence.
data::TokenBatch two_sequences() {
  data::TokenBatch batch;
  batch.resize(2, 8);
  std::iota(batch.tokens.begin(), batch.tokens.end(), 100);
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.targets = {batch.tokens, {1, 0}};
  batch.segments = batch.positions;
  batch.document_end.assign(16, 8);
  batch.document_end[15] = 6;
  batch.real.assign(16, 1);
  batch.real[15] = 0;
  return batch;
}

TEST(Layout, HasTheGroupOfEachOperationOfAStep) {
  struct Case {
    std::vector<std::string> sets;
    int ranks;
    const char* model;
  };
  for (const auto& [sets, ranks, model_name] :
       {Case{{"parallel.zero=0"}, 2, "llama3-70b"},
        Case{{"parallel.tp=2", "parallel.pp=2", "parallel.zero=1"}, 8, "llama3-70b"},
        Case{{"parallel.cp=2"}, 4, "llama3-70b"},
        Case{{"parallel.pp=2", "parallel.ep=4"}, 8, "mixtral-8x7b"}}) {
    const RunConfig config = accepted("", sets).config;
    const fs::path file = fmt::format("tests/fixtures/configs/{}.json", model_name);
    const ModelDescription model = load_model_config(source_dir() / file).description;
    const layout::LayoutDescription description =
        layout::describe_layout(config, model, ranks, layout::Placement::even(8));
    const layout::LayoutCosts costs(config, model, description);
    comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
      const Layout layout(description, config, at::kCPU, world);
      const int rank = world->rank();
      EXPECT_FALSE(costs.of(rank).traffic.lines().empty());
      for (const layout::TrafficLine& line : costs.of(rank).traffic.lines()) {
        const comm::Communicator* group = layout.tensor_group(line.group);
        ASSERT_NE(group, nullptr) << layout::group_name(line.group);
        const auto members = description.rank_groups().members(line.group, rank);
        EXPECT_EQ(group->size(), std::ssize(members)) << layout::group_name(line.group);
        EXPECT_EQ(members.at(static_cast<size_t>(group->rank())), rank)
            << layout::group_name(line.group);
      }
    });
  }
}

TEST(TakePositions, EveryFieldKeepsItsValuesAtTheRanksPositions) {
  const layout::ContextLayout context(8, 2);  // rank 1 holds positions 2 to 5
  data::TokenBatch batch = two_sequences();
  take_positions(context, 1, batch);
  EXPECT_EQ(batch.num_sequences, 2);
  EXPECT_EQ(batch.seq_len, 4);
  EXPECT_EQ(batch.tokens, (Values{102, 103, 104, 105, 110, 111, 112, 113}));
  EXPECT_EQ(batch.targets[0], batch.tokens);
  EXPECT_EQ(batch.positions, (Values{2, 3, 4, 5, 10, 11, 12, 13}));
  EXPECT_EQ(batch.segments, batch.positions);
  EXPECT_EQ(batch.document_start, Values(8, 0));
  EXPECT_EQ(batch.document_end, Values(8, 8));
  EXPECT_EQ(batch.real, Values(8, 1));
  batch = two_sequences();
  take_positions(context, 0, batch);
  EXPECT_EQ(batch.document_end, (Values{8, 8, 8, 8, 8, 8, 8, 6}));
  EXPECT_EQ(batch.real, (Values{1, 1, 1, 1, 1, 1, 1, 0}));
}

TEST(TakePositions, ASequencesOwnTargetsStayWithTheRankOfItsFirstPosition) {
  const layout::ContextLayout context(8, 2);
  data::TokenBatch first = two_sequences();
  data::TokenBatch second = two_sequences();
  take_positions(context, 0, first);
  take_positions(context, 1, second);
  EXPECT_EQ(first.positions[0], 0);
  EXPECT_EQ(first.targets[1], (Values{1, 0}));
  EXPECT_EQ(second.targets[1], (Values{kIgnore, kIgnore}));
  EXPECT_EQ(first.num_targets(1) + second.num_targets(1), 2);
  EXPECT_EQ(first.num_targets(0) + second.num_targets(0), 16);
}

TEST(TakePositions, OneRankKeepsABatchAsItIs) {
  data::TokenBatch batch = two_sequences();
  take_positions(layout::ContextLayout(8, 1), 0, batch);
  EXPECT_EQ(batch.tokens, two_sequences().tokens);
  EXPECT_EQ(batch.targets, two_sequences().targets);
  EXPECT_EQ(batch.document_end, two_sequences().document_end);
}

TEST(TakePositions, FieldsThatTheDataDoesNotHaveStayAbsent) {
  data::TokenBatch batch;
  batch.resize(1, 8);
  take_positions(layout::ContextLayout(8, 2), 1, batch);
  EXPECT_TRUE(batch.segments.empty());
  EXPECT_TRUE(batch.document_end.empty());
  EXPECT_TRUE(batch.real.empty());
  EXPECT_EQ(batch.targets[0].size(), 4U);
}

}  // namespace
}  // namespace longhaul::session
