#include "longhaul/cluster/health/findings.h"

#include <gtest/gtest.h>

namespace longhaul::cluster {
namespace {

HealthReport failing(const std::string& node, const std::string& check,
                     const std::string& text, bool of_file_system = false) {
  HealthReport report;
  report.node = node;
  HealthCheck fine;
  fine.name = "memory";
  HealthCheck bad;
  bad.name = check;
  bad.result = HealthResult::Failed;
  bad.text = text;
  bad.of_file_system = of_file_system;
  report.checks = {fine, bad};
  return report;
}

HealthReport healthy(const std::string& node) {
  HealthReport report;
  report.node = node;
  return report;
}

TEST(Findings, TooLittleRoomIsNoNodesFaultAlsoWhereOneNodeAloneWasAsked) {
  const Findings found =
      judge_health({failing("n1", "disk /fsx/run", "0.9 GB are free", true)});
  EXPECT_TRUE(found.sick.empty());
  EXPECT_EQ(found.shared,
            std::vector<std::string>{"disk /fsx/run: 0.9 GB are free (seen on n1)"});
}

TEST(Findings, ADirectoryThatFailsOnSeveralNodesIsToldOnce) {
  const Findings found = judge_health(
      {failing("n1", "disk /fsx", "no answer within 15.0 s"), healthy("n2"),
       failing("n3", "disk /fsx", "Input/output error"), healthy("n4"), healthy("n5")});
  EXPECT_TRUE(found.sick.empty());
  EXPECT_EQ(found.shared, std::vector<std::string>{
                              "disk /fsx: no answer within 15.0 s (seen on n1, n3)"});
}

TEST(Findings, ANodeThatAloneCannotReachItIsSick) {
  const Findings found =
      judge_health({failing("n1", "disk /fsx", "No such file; mount it"), healthy("n2")});
  EXPECT_TRUE(found.shared.empty());
  ASSERT_EQ(found.sick.size(), 1U);
  EXPECT_EQ(found.sick[0].node, "n1");
  EXPECT_EQ(found.sick[0].cause, "disk /fsx: No such file; mount it");
}

TEST(Findings, TheSameWordsOfACommandAreSharedWhereMostNodesSayThem) {
  const std::string text = "'check.sh' ended with 127: not found";
  const Findings all = judge_health(
      {failing("n1", "command", text), failing("n2", "command", text), healthy("n3")});
  EXPECT_TRUE(all.sick.empty());
  EXPECT_EQ(all.shared.size(), 1U);
  const Findings some =
      judge_health({failing("n1", "command", text), failing("n2", "command", text),
                    healthy("n3"), healthy("n4")});
  EXPECT_EQ(some.sick.size(), 2U);
  EXPECT_TRUE(some.shared.empty());
}

}  // namespace
}  // namespace longhaul::cluster
