#include "apps/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "longhaul/comm/backend.h"
#include "longhaul/config/load.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::apps {
namespace {

using comm::Communicator;
using comm::run_fake_ranks;

RunConfig config_with(const std::vector<std::string>& sets) {
  constexpr const char* kText =
      "[run]\ndir = \"r\"\nsteps = 8\n[model]\nconfig = \"m\"\n"
      "[data]\nseq_len = 32\ntrain = [{ synthetic = 100 }]\n"
      "[batch]\nglobal_size = 8\n[optimizer]\nlr = 1e-3\n";
  return parse_run_config(kText, "run.toml", sets).config;
}

TEST(SameConfig, EqualSettingsPass) {
  run_fake_ranks(3, [](const std::shared_ptr<Communicator>& world) {
    check_same_config(*world, config_with({}));
  });
}

TEST(SameConfig, AnotherRankIsNamedWithTheFirstKeyAndBothValues) {
  std::mutex mutex;
  std::vector<std::string> messages;
  run_fake_ranks(4, [&](const std::shared_ptr<Communicator>& world) {
    std::vector<std::string> sets;
    if (world->rank() >= 2) sets = {"parallel.zero=0", "optimizer.lr=2e-3"};
    try {
      check_same_config(*world, config_with(sets));
    } catch (const ConfigError& error) {
      const std::lock_guard lock(mutex);
      messages.emplace_back(error.what());
    }
  });
  ASSERT_EQ(messages.size(), 4U);
  for (const std::string& message : messages) {
    EXPECT_EQ(
        message,
        "[config] ranks 2, 3 of 4 were started with other settings than rank 0: "
        "parallel.zero = 1 on rank 0, 0 on rank 2 (2 keys differ); start every rank "
        "with the same file and --set");
  }
}

/// Returns the lines that ranks print when each rank with a text in `failing` ends with
/// an error of this text.
std::vector<std::string> said(const std::vector<std::string>& failing,
                              const char* area = "data") {
  std::mutex mutex;
  std::vector<std::string> lines;
  run_fake_ranks(static_cast<int>(failing.size()),
                 [&](const std::shared_ptr<Communicator>& world) {
                   FailureReport report(
                       *world,
                       [&](const std::string& line) {
                         const std::lock_guard lock(mutex);
                         lines.push_back(line);
                       },
                       /*patience_seconds=*/0.5);
                   const std::string& text = failing[static_cast<size_t>(world->rank())];
                   if (!text.empty()) report.report(InputError(area, text));
                 });
  std::ranges::sort(lines);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(FailureReport, WhatAllRanksHaveIsSaidOnceWithoutARank) {
  EXPECT_EQ(said({"no store", "no store", "no store"}), Lines{"[data] no store"});
  EXPECT_EQ(said({"no store"}), Lines{"[data] no store"});
}

TEST(FailureReport, AFailureOfOneRankCarriesItsRank) {
  EXPECT_EQ(said({"", "", "no store"}), Lines{"rank 2 of 3: [data] no store"});
}

TEST(FailureReport, EveryTextIsSaidByTheLowestRankThatHasIt) {
  EXPECT_EQ(said({"a", "b", "a", "b"}),
            (Lines{"rank 0 of 4: [data] a", "rank 1 of 4: [data] b"}));
}

TEST(FailureReport, ErrorsOfCommunicationAreSaidByEachRank) {
  EXPECT_EQ(said({"late", "late"}, "comm"),
            (Lines{"rank 0 of 2: [comm] late", "rank 1 of 2: [comm] late"}));
}

TEST(FailureReport, AlsoWhereAnotherPartHasPutItsWordsBefore) {
  const std::string text = "rank 0 sends nothing: [comm] late";
  EXPECT_EQ(said({text, text}, "pipeline"), (Lines{"rank 0 of 2: [pipeline] " + text,
                                                   "rank 1 of 2: [pipeline] " + text}));
}

TEST(FailureReport, ARankWithOperationsUnderWaySpeaksForItself) {
  Lines lines;
  run_fake_ranks(2, [&](const std::shared_ptr<Communicator>& world) {
    FailureReport report(*world, [&](const std::string& line) { lines.push_back(line); });
    if (world->rank() == 1) return;
    const comm::WorkPtr never = world->barrier();
    report.report(InputError("data", "no store"));
  });
  EXPECT_EQ(lines, Lines{"rank 0 of 2: [data] no store"});
}

TEST(MpirunEndsJob, ASignalOfOursIsNoneOfMpiruns) { EXPECT_EQ(mpirun_ends_job(), ""); }

}  // namespace
}  // namespace longhaul::apps
