#include "longhaul/layout/pipeline/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/layout/pipeline/messages.h"
#include "tests/support/simulate_pipeline.h"

namespace longhaul::layout {
namespace {

using Kind = PipelineAction::Kind;

std::string text_of(const PipelinePlan& plan, int rank) {
  std::string text;
  for (const PipelineAction& action : plan.of(rank)) text += to_string(action) + " ";
  return text;
}

/// Returns the text of the error that is thrown, or "no error".
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

void expect_message(const std::function<void()>& body, const std::string& part) {
  const std::string message = error_of(body);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

struct Layout {
  PipelineKind kind;
  int stages;
  int chunks;
  int64_t micro_batches;
  PipelinePlan plan() const {
    return make_pipeline_plan(kind, stages, chunks, micro_batches);
  }
  std::string name() const {
    return fmt::format("kind {} p {} v {} m {}", static_cast<int>(kind), stages, chunks,
                       micro_batches);
  }
};

/// Returns every valid layout of up to 16 ranks, 64 micro batches and 4 chunks.
void for_all(const std::function<void(const Layout&)>& body) {
  for (int p = 1; p <= 16; ++p) {
    for (int64_t m = 1; m <= 64; ++m) {
      for (const PipelineKind kind :
           {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::ZeroBubbleH1}) {
        body({kind, p, 1, m});
      }
      if (m % p != 0) continue;
      for (int v = 2; v <= 4; ++v) body({PipelineKind::Interleaved, p, v, m});
    }
  }
}

void for_all(PipelineKind kind, const std::function<void(const Layout&)>& body) {
  for_all([&](const Layout& layout) {
    if (layout.kind == kind) body(layout);
  });
}

constexpr PipelineTimes kEqual{1.0, 1.0, 1.0, 0.0};
/// Times of actions where the backward also computes the weight gradients.
constexpr PipelineTimes kWhole{1.0, 2.0, 0.0, 0.0};
constexpr PipelineTimes kUneven{3.0, 5.0, 2.0, 0.0};

TEST(Plan, ListsTheActionsOfSmallPipelines) {
  EXPECT_EQ(text_of(make_pipeline_plan(PipelineKind::GPipe, 2, 1, 2), 1),
            "F0.0 F0.1 B0.0 W0.0 B0.1 W0.1 ");
  const auto plan = make_pipeline_plan(PipelineKind::OneFOneB, 2, 1, 3);
  EXPECT_EQ(text_of(plan, 0), "F0.0 F0.1 B0.0 W0.0 F0.2 B0.1 W0.1 B0.2 W0.2 ");
  EXPECT_EQ(text_of(plan, 1), "F0.0 B0.0 W0.0 F0.1 B0.1 W0.1 F0.2 B0.2 W0.2 ");
  EXPECT_EQ(text_of(make_pipeline_plan(PipelineKind::ZeroBubbleH1, 2, 1, 3), 1),
            "F0.0 B0.0 F0.1 B0.1 W0.0 F0.2 B0.2 W0.1 W0.2 ");
  EXPECT_EQ(text_of(make_pipeline_plan(PipelineKind::Interleaved, 2, 2, 2), 1),
            "F0.0 F0.1 F1.0 B1.0 W1.0 F1.1 B1.1 W1.1 B0.0 W0.0 B0.1 W0.1 ");
  EXPECT_EQ(text_of(inference_plan(2, 2, 3), 0), "F0.0 F0.1 F1.0 F1.1 F0.2 F1.2 ");
}

TEST(Plan, OneStageRunsEachMicroBatchWhole) {
  for (const PipelineKind kind : {PipelineKind::OneFOneB, PipelineKind::ZeroBubbleH1}) {
    EXPECT_EQ(text_of(make_pipeline_plan(kind, 1, 1, 2), 0),
              "F0.0 B0.0 W0.0 F0.1 B0.1 W0.1 ");
  }
}

TEST(Plan, TakesNoNumbersThatDoNotFitTogether) {
  const auto make = [](PipelineKind kind, int p, int v, int64_t m) {
    return [=] { make_pipeline_plan(kind, p, v, m); };
  };
  expect_message(make(PipelineKind::Interleaved, 4, 2, 6), "6 micro batches in 4 stages");
  expect_message(make(PipelineKind::Interleaved, 4, 1, 8), "1 on each rank, interleaved");
  expect_message(make(PipelineKind::OneFOneB, 4, 2, 8),
                 "2 on each rank, not interleaved");
  expect_message(make(PipelineKind::GPipe, 0, 1, 8), "the pipeline has 0 stages");
  expect_message(make(PipelineKind::ZeroBubbleH1, 2, 1, 0), "0 micro batches");
}

TEST(Simulate, AllPlansUpTo16RanksKeepTheOrderAndDoNotDeadlock) {
  int64_t plans = 0;
  for_all([&](const Layout& layout) {
    for (const PipelineTimes& times : {kEqual, kUneven, PipelineTimes{1, 2, 1, 0.25}}) {
      ASSERT_EQ(error_of([&] { simulate_pipeline(layout.plan(), times); }), "no error")
          << layout.name();
    }
    ++plans;
  });
  EXPECT_GT(plans, 3500);
}

/// Simulates the groups of SlotOrder. A rank's groups run one after the other; a group
/// ends when the other rank of each of its messages has come to that message as well.
void expect_slots_end(const PipelinePlan& plan, const std::string& name) {
  struct Rank {
    std::vector<SlotOrder> order;
    size_t run = 0;                   ///< actions that were run
    std::deque<MessageGroup> posted;  ///< groups that were posted and have not ended
    std::set<PipelineAction> here;    ///< consumers whose message has come
  };
  std::vector<Rank> ranks(static_cast<size_t>(plan.stages));
  const auto post = [&](Rank& rank) {
    for (const MessageGroup& group : rank.order[0].after(rank.run)) {
      rank.posted.push_back(group);
    }
  };
  for (int r = 0; r < plan.stages; ++r) {
    ranks[static_cast<size_t>(r)].order.emplace_back(plan, r);
    post(ranks[static_cast<size_t>(r)]);
  }
  const auto first_has = [&](int r, const PipelineMessage& message) {
    const Rank& rank = ranks[static_cast<size_t>(r)];
    return !rank.posted.empty() &&
           std::ranges::any_of(rank.posted.front().messages, [&](const auto& m) {
             return m.from == message.from && m.to == message.to &&
                    m.consumer == message.consumer;
           });
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < plan.stages; ++r) {
      Rank& rank = ranks[static_cast<size_t>(r)];
      while (rank.run < plan.of(r).size()) {
        const auto before = message_before(plan, r, plan.of(r)[rank.run]);
        if (before && before->from != r && !rank.here.contains(before->consumer)) break;
        ++rank.run;
        post(rank);
        moved = true;
      }
      if (rank.posted.empty()) continue;
      auto& messages = rank.posted.front().messages;
      // A message ends for both of its ranks at once: in this loop, when the sender's
      // turn comes.
      std::erase_if(messages, [&](const PipelineMessage& m) {
        if (m.from != r || !first_has(m.to, m)) return false;
        Rank& to = ranks[static_cast<size_t>(m.to)];
        to.here.insert(m.consumer);
        std::erase_if(to.posted.front().messages, [&](const PipelineMessage& other) {
          return other.from == m.from && other.to == m.to && other.consumer == m.consumer;
        });
        moved = true;
        return true;
      });
      if (messages.empty()) {
        rank.posted.pop_front();
        moved = true;
      }
    }
  }
  for (int r = 0; r < plan.stages; ++r) {
    EXPECT_EQ(ranks[static_cast<size_t>(r)].run, plan.of(r).size()) << name;
    EXPECT_TRUE(ranks[static_cast<size_t>(r)].posted.empty()) << name;
  }
}

TEST(SlotOrder, GroupsThatRunOneAfterTheOtherComeToAnEndInEveryPlan) {
  for_all([](const Layout& layout) {
    if (layout.stages > 8 || layout.micro_batches > 16) return;
    expect_slots_end(layout.plan(), layout.name());
  });
  for (const int p : {2, 3, 5}) {
    for (const int v : {1, 3}) expect_slots_end(inference_plan(p, v, 4), "inference");
  }
}

TEST(SlotOrder, SendsAndReceivesOfASlotAreOneGroup) {
  const PipelinePlan plan = make_pipeline_plan(PipelineKind::OneFOneB, 2, 1, 3);
  const SlotOrder last(plan, 1);
  // Rank 0 runs its second forward while rank 1 runs its first.
  ASSERT_EQ(last.after(0).size(), 1U);
  EXPECT_EQ(last.after(0)[0].messages.at(0).consumer,
            (PipelineAction{Kind::Forward, 0, 0}));
  size_t both = 0;
  for (size_t done = 0; done <= plan.of(1).size(); ++done) {
    for (const MessageGroup& group : last.after(done)) {
      both += group.messages.size() > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(both, 0U);
}

TEST(Simulate, InferencePlansDoNotDeadlockAndHaveTheBubbleOfAForwardPipeline) {
  for (int p = 1; p <= 16; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int64_t m = 1; m <= 64; ++m) {
        const auto result = simulate_pipeline(inference_plan(p, v, m), kEqual);
        ASSERT_GE(result.makespan, static_cast<double>(m * v + p - 1));
        if (m % p == 0) {
          ASSERT_EQ(result.makespan, static_cast<double>(m * v + p - 1))
              << p << " " << v << " " << m;
        }
      }
    }
  }
}

TEST(Simulate, GPipeTakesMicroBatchesPlusStagesLessOneRounds) {
  for_all(PipelineKind::GPipe, [](const Layout& layout) {
    const auto result = simulate_pipeline(layout.plan(), kWhole);
    ASSERT_EQ(result.makespan,
              3.0 * static_cast<double>(layout.micro_batches + layout.stages - 1));
    for (const int64_t live : result.peak_live) ASSERT_EQ(live, layout.micro_batches);
  });
}

TEST(Simulate, OneFOneBHoldsMinOfMicroBatchesAndStagesFromHereOn) {
  for_all(PipelineKind::OneFOneB, [](const Layout& layout) {
    const auto result = simulate_pipeline(layout.plan(), kEqual);
    for (int r = 0; r < layout.stages; ++r) {
      ASSERT_EQ(result.peak_live[static_cast<size_t>(r)],
                std::min<int64_t>(layout.micro_batches, layout.stages - r))
          << layout.name();
    }
  });
}

TEST(Simulate, OneFOneBWithWholeBackwardsHasTheBubbleOfTheFormula) {
  for_all(PipelineKind::OneFOneB, [](const Layout& layout) {
    for (const PipelineTimes& times : {kWhole, PipelineTimes{4, 7, 0, 0}}) {
      const auto result = simulate_pipeline(layout.plan(), times);
      const double p = layout.stages;
      const auto m = static_cast<double>(layout.micro_batches);
      const double t = times.forward + times.backward;
      ASSERT_EQ(result.makespan, m * t + (p - 1) * t) << layout.name();
      for (const double bubble : result.bubble) {
        ASSERT_NEAR(bubble, (p - 1) / (m + p - 1), 1e-12);
      }
    }
  });
}

/// A rank sends the gradient of its input before it computes weight gradients. That saves
/// (p - 1) W against the formula for whole backwards, where W is the time of weight
/// gradients.
TEST(Simulate, OneFOneBWithSplitBackwardsSavesAWeightGradientPerStage) {
  for_all(PipelineKind::OneFOneB, [](const Layout& layout) {
    for (const PipelineTimes& times : {kEqual, kUneven}) {
      const double t = times.forward + times.backward + times.weight_gradients;
      ASSERT_EQ(simulate_pipeline(layout.plan(), times).makespan,
                static_cast<double>(layout.micro_batches) * t +
                    (layout.stages - 1) * (times.forward + times.backward))
          << layout.name();
    }
  });
}

TEST(Simulate, InterleavedWithWholeBackwardsHasTheBubbleOfTheFormula) {
  for_all(PipelineKind::Interleaved, [](const Layout& layout) {
    for (const PipelineTimes& times : {kWhole, PipelineTimes{4, 7, 0, 0}}) {
      const double p = layout.stages;
      const double chunk = times.forward + times.backward;
      const auto work = static_cast<double>(layout.micro_batches * layout.chunks) * chunk;
      const auto result = simulate_pipeline(layout.plan(), times);
      ASSERT_EQ(result.makespan, work + (p - 1) * chunk) << layout.name();
      for (const double bubble : result.bubble) {
        ASSERT_NEAR(bubble, (p - 1) * chunk / (work + (p - 1) * chunk), 1e-12);
      }
    }
  });
}

/// Megatron-LM states that an interleaved schedule takes at most 1 + (p - 1) / (p v)
/// times the memory of 1F1B.
TEST(Simulate, InterleavedHoldsItsWarmUpAndOne) {
  for_all(PipelineKind::Interleaved, [](const Layout& layout) {
    const auto result = simulate_pipeline(layout.plan(), kWhole);
    const int64_t p = layout.stages;
    const int64_t v = layout.chunks;
    for (int r = 0; r < p; ++r) {
      ASSERT_EQ(
          result.peak_live[static_cast<size_t>(r)],
          std::min<int64_t>(layout.micro_batches * v, 2 * (p - r - 1) + (v - 1) * p + 1));
    }
    ASSERT_LE(result.peak_live[0], p * v + p - 1);
  });
}

/// The bubble is (p - 1)(F + B - 2 W), where B is the whole backward. The formula holds
/// for at least p micro batches and weight gradients that take no longer than the rest of
/// the backward.
TEST(Simulate, ZeroBubbleH1HasTheBubbleOfTheFormula) {
  for_all(PipelineKind::ZeroBubbleH1, [](const Layout& layout) {
    if (layout.micro_batches < layout.stages) return;
    for (const PipelineTimes& times : {kEqual, PipelineTimes{4, 5, 3, 0}}) {
      const double whole = times.backward + times.weight_gradients;
      ASSERT_EQ(
          simulate_pipeline(layout.plan(), times).makespan,
          static_cast<double>(layout.micro_batches) * (times.forward + whole) +
              (layout.stages - 1) * (times.forward + whole - 2 * times.weight_gradients))
          << layout.name();
    }
  });
}

TEST(Simulate, ZeroBubbleH1HoldsNoMoreThanTheFirstRankOfOneFOneB) {
  for_all(PipelineKind::ZeroBubbleH1, [](const Layout& layout) {
    const auto result = simulate_pipeline(layout.plan(), kEqual);
    const Layout plain{PipelineKind::OneFOneB, layout.stages, 1, layout.micro_batches};
    const auto expected = simulate_pipeline(plain.plan(), kEqual).peak_live[0];
    ASSERT_EQ(*std::max_element(result.peak_live.begin(), result.peak_live.end()),
              expected)
        << layout.name();
  });
}

TEST(Simulate, NoScheduleIsSlowerThanOneFOneBWhichIsNoSlowerThanGPipe) {
  for_all(PipelineKind::OneFOneB, [](const Layout& layout) {
    for (const PipelineTimes& times : {kEqual, kUneven}) {
      const auto time_of = [&](PipelineKind kind) {
        return simulate_pipeline(
                   Layout{kind, layout.stages, 1, layout.micro_batches}.plan(), times)
            .makespan;
      };
      const double plain = time_of(PipelineKind::OneFOneB);
      ASSERT_LE(plain, time_of(PipelineKind::GPipe)) << layout.name();
      ASSERT_LE(time_of(PipelineKind::ZeroBubbleH1), plain) << layout.name();
    }
  });
}

TEST(Simulate, BubblesOfTheUsualLayoutsInPercentOfTheStep) {
  struct Row {
    int stages;
    int64_t micro_batches;
    double one_f_one_b, interleaved_2, interleaved_4, zero_bubble;
  };
  const auto percent = [](PipelineKind kind, int p, int v, int64_t m,
                          const PipelineTimes& times) {
    return 100.0 * simulate_pipeline(make_pipeline_plan(kind, p, v, m), times).bubble[0];
  };
  for (const Row& row : {Row{4, 8, 27.3, 15.8, 8.6, 11.1},
                         {8, 16, 30.4, 17.9, 9.9, 12.7},
                         {8, 32, 17.9, 9.9, 5.2, 6.8},
                         {16, 16, 48.4, 31.9, 19.0, 23.8},
                         {8, 512, 1.35, 0.68, 0.34, 0.45}}) {
    const int p = row.stages;
    const int64_t m = row.micro_batches;
    EXPECT_NEAR(percent(PipelineKind::OneFOneB, p, 1, m, kWhole), row.one_f_one_b, 0.06);
    EXPECT_NEAR(percent(PipelineKind::Interleaved, p, 2, m, kWhole), row.interleaved_2,
                0.06);
    EXPECT_NEAR(percent(PipelineKind::Interleaved, p, 4, m, kWhole), row.interleaved_4,
                0.06);
    EXPECT_NEAR(percent(PipelineKind::ZeroBubbleH1, p, 1, m, kEqual), row.zero_bubble,
                0.06);
  }
}

TEST(Simulate, NamesTheRanksAndActionsOfADeadlock) {
  // Rank 0 waits for a backward before it sends a message that rank 1 needs before that
  // backward.
  auto plan = make_pipeline_plan(PipelineKind::OneFOneB, 2, 1, 2);
  plan.actions[0] = make_pipeline_plan(PipelineKind::OneFOneB, 1, 1, 2).actions[0];
  plan.actions[1] = make_pipeline_plan(PipelineKind::GPipe, 1, 1, 2).actions[0];
  expect_message([&] { simulate_pipeline(plan, kEqual); },
                 "deadlock: rank 0 waits in B0.0 for rank 1, rank 1 waits in F0.1 for "
                 "rank 0");
}

/// Returns the number of an action in a rank's list.
ptrdiff_t place(const std::vector<PipelineAction>& actions,
                const PipelineAction& action) {
  return std::find(actions.begin(), actions.end(), action) - actions.begin();
}

TEST(Simulate, FindsPlantedFaults) {
  const auto good = make_pipeline_plan(PipelineKind::OneFOneB, 4, 1, 8);
  const auto swapped = [&](int rank, PipelineAction a, PipelineAction b) {
    auto plan = good;
    auto& actions = plan.actions[static_cast<size_t>(rank)];
    std::swap(actions[static_cast<size_t>(place(actions, a))],
              actions[static_cast<size_t>(place(actions, b))]);
    return error_of([&] { simulate_pipeline(plan, kEqual); });
  };
  EXPECT_EQ(swapped(2, {Kind::Forward, 0, 3}, {Kind::Backward, 0, 3}),
            "[pipeline] rank 2: B0.3 breaks the rule 'forward before backward'");
  EXPECT_EQ(swapped(0, {Kind::Backward, 0, 3}, {Kind::Backward, 0, 4}),
            "[pipeline] rank 0: B0.4 breaks the rule 'backwards in ascending micro "
            "batches'");
  EXPECT_EQ(swapped(1, {Kind::WeightGradients, 0, 3}, {Kind::WeightGradients, 0, 4}),
            "[pipeline] rank 1: W0.4 breaks the rule 'backward before weight gradients'");
  auto plan = good;
  plan.actions[1].erase(plan.actions[1].begin() + 1);
  EXPECT_EQ(error_of([&] { simulate_pipeline(plan, kEqual); }),
            "[pipeline] rank 1: B0.1 breaks the rule 'forward before backward'");
  plan = good;
  plan.actions[3].push_back({Kind::Forward, 0, 0});
  EXPECT_EQ(error_of([&] { simulate_pipeline(plan, kEqual); }),
            "[pipeline] rank 3: F0.0 breaks the rule 'one forward per micro batch'");
  auto forwards = inference_plan(4, 1, 8);
  forwards.actions[1].erase(forwards.actions[1].begin() + 1);
  EXPECT_EQ(error_of([&] { simulate_pipeline(forwards, kEqual); }),
            "[pipeline] rank 1, chunk 0: 7 forwards, 0 backwards and 0 weight "
            "gradients for 8 micro batches");
}

TEST(Simulate, SwappedForwardsOfOneRankAreReceivedInTheSendersOrder) {
  auto plan = inference_plan(2, 1, 3);
  std::swap(plan.actions[0][1], plan.actions[0][2]);
  ReceiveOrder order(plan, 1);
  std::vector<PipelineMessage> posted = order.due(0);
  ASSERT_EQ(posted.size(), 3U);
  EXPECT_EQ(to_string(posted[1].consumer), "F0.2");
  EXPECT_EQ(to_string(posted[2].consumer), "F0.1");
  EXPECT_EQ(simulate_pipeline(plan, kEqual).makespan,
            5.0);  // F0.1 runs one unit later than it could
}

TEST(ReceiveOrder, OfTwoRanksMixesActivationsAndGradientsAsTheirSenderDoes) {
  const auto plan = make_pipeline_plan(PipelineKind::Interleaved, 2, 2, 4);
  std::vector<std::string> expected;
  for (const PipelineAction& action : plan.of(0)) {
    const auto message = message_after(plan, 0, action);
    if (message) expected.push_back(to_string(message->consumer));
  }
  std::vector<std::string> posted;
  ReceiveOrder order(plan, 1);
  for (size_t i = 0; i < plan.of(1).size(); ++i) {
    for (const auto& message : order.due(i)) {
      posted.push_back(to_string(message.consumer));
    }
    // The receive that the action needs is among those that were posted.
    const auto before = message_before(plan, 1, plan.of(1)[i]);
    if (before) {
      EXPECT_TRUE(std::find(posted.begin(), posted.end(), to_string(before->consumer)) !=
                  posted.end());
    }
  }
  EXPECT_EQ(posted, expected);
  EXPECT_EQ(posted.size(), 12U);
}

TEST(ReceiveOrder, SaysWhichMessageIsNeverSent) {
  auto plan = inference_plan(2, 1, 2);
  plan.actions[0].pop_back();
  ReceiveOrder order(plan, 1);
  expect_message([&] { order.due(0); },
                 "rank 1 waits in F0.1 for a message that rank 0 never sends");
}

}  // namespace
}  // namespace longhaul::layout
