#include "apps/node_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/config/rules.h"
#include "tests/support/settings.h"

namespace longhaul::apps {
namespace {

using Names = std::vector<std::string>;

/// The starts of a run with two ranks on each node.
class Starts {
 public:
  Starts(int nodes, const std::string& on_node_loss)
      : config_(accepted("[resilience]\non_node_loss = \"" + on_node_loss + "\"\n",
                         {"batch.global_size=16"})
                    .config),
        choice_(
            config_, [this] { return usable; }, nodes,
            [this](int64_t fewer) {
              return config::broken_by_ranks(config_, 2 * fewer).empty();
            }) {}
  Starts(const Starts&) = delete;
  Starts& operator=(const Starts&) = delete;

  Names choose(Names excluded = {}) { return choice_.choose(without(excluded)); }
  bool lacks(Names excluded = {}) { return choice_.lacks(without(excluded)); }

  Names usable = {"a", "b", "c", "d"};  ///< the nodes that answer

 private:
  static cluster::Attempt without(Names& excluded) {
    cluster::Attempt attempt;
    attempt.excluded = std::move(excluded);
    return attempt;
  }

  RunConfig config_;
  NodeChoice choice_;
};

TEST(NodeChoice, BeginsWithTheFirstNodes) {
  Starts starts(2, "spare");
  EXPECT_EQ(starts.choose(), (Names{"a", "b"}));
  EXPECT_FALSE(starts.lacks());
}

TEST(NodeChoice, KeepsTheRunsNodesBeforeSpares) {
  Starts starts(2, "spare");
  starts.usable = {"c", "d"};
  EXPECT_EQ(starts.choose(), (Names{"c", "d"}));
  starts.usable = {"a", "b", "c", "d"};
  EXPECT_EQ(starts.choose(), (Names{"c", "d"}));
}

TEST(NodeChoice, TakesASpareBehindTheNodesThatAreLeft) {
  Starts starts(3, "spare");
  starts.usable = {"b", "c", "d"};
  EXPECT_EQ(starts.choose(), (Names{"b", "c", "d"}));
  starts.usable = {"a", "b", "d"};
  EXPECT_EQ(starts.choose(), (Names{"b", "d", "a"}));
  // The node that was lost has come back, and is a spare now.
  starts.usable = {"a", "b", "c", "d"};
  EXPECT_EQ(starts.choose(), (Names{"a", "b", "d"}));
}

TEST(NodeChoice, NeverTakesAnExcludedNode) {
  Starts starts(2, "spare");
  EXPECT_EQ(starts.choose({"a"}), (Names{"b", "c"}));
  EXPECT_EQ(starts.choose({"b", "c"}), (Names{"a", "d"}));
  EXPECT_FALSE(starts.lacks({"b", "c"}));
  EXPECT_TRUE(starts.lacks({"b", "c", "d"}));
}

TEST(NodeChoice, WithTooFewNodesSaysWhichItHas) {
  Starts starts(3, "spare");
  EXPECT_EQ(starts.choose({"b"}), (Names{"a", "c", "d"}));
  EXPECT_TRUE(starts.lacks({"a", "c"}));
  try {
    starts.choose({"a", "c"});
    FAIL() << "nothing was thrown";
  } catch (const TemporaryError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("the run needs 3 nodes and can use 2 (b, d); left out: a, c"),
              std::string::npos)
        << error.what();
  }
  // The nodes that trained last are the run's nodes all the same.
  EXPECT_EQ(starts.choose(), (Names{"a", "c", "d"}));
}

TEST(NodeChoice, WithWaitTakesNoSpareAfterTheFirstStart) {
  Starts starts(2, "wait");
  EXPECT_EQ(starts.choose({"a"}), (Names{"b", "c"}));
  EXPECT_TRUE(starts.lacks({"b"}));
  EXPECT_THROW(starts.choose({"b"}), TemporaryError);
  EXPECT_FALSE(starts.lacks());
  EXPECT_EQ(starts.choose(), (Names{"b", "c"}));
}

TEST(NodeChoice, WithShrinkTakesAsManyNodesAsTheBatchAllows) {
  Starts starts(4, "shrink");
  // Sixteen sequences do not divide among the six ranks of three nodes.
  EXPECT_EQ(starts.choose({"a"}), (Names{"b", "c"}));
  EXPECT_TRUE(starts.lacks({"a"}));
  EXPECT_EQ(starts.choose({"a", "b", "c"}), (Names{"d"}));
  EXPECT_THROW(starts.choose({"a", "b", "c", "d"}), TemporaryError);
  // All nodes train again when they are there.
  EXPECT_EQ(starts.choose(), (Names{"d", "a", "b", "c"}));
}

}  // namespace
}  // namespace longhaul::apps
