#include "longhaul/cluster/record/exclusions.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/checked_node.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

constexpr double kNow = 1e6;

class ExclusionsOfARun : public testing::Test {
 protected:
  std::vector<std::string> readmit(const HealthReport& report, double now) {
    std::vector<std::string> names;
    for (const ExcludedNode& node : out_.readmit({report}, now, log_)) {
      names.push_back(node.node);
    }
    return names;
  }
  std::vector<std::string> in_file() const {
    std::vector<std::string> names;
    for (const ExcludedNode& node : read_excluded(dir_ / "excluded_nodes.json")) {
      names.push_back(node.node);
    }
    return names;
  }
  using Names = std::vector<std::string>;

  TestDirectory dir_;
  system::Logger log_;
  Exclusions out_{dir_.path()};
};

TEST_F(ExclusionsOfARun, ASickOrSilentNodeComesBackWhenACheckPassesAndNotBefore) {
  for (const ExclusionKind kind : {ExclusionKind::Health, ExclusionKind::Silence}) {
    ASSERT_TRUE(out_.add("n2", kind, "it was so", kNow, log_));
    EXPECT_FALSE(out_.add("n2", kind, "told twice", kNow, log_));
    EXPECT_EQ(out_.testable(kNow), Names{"n2"});
    EXPECT_EQ(readmit(report_of("n2", false), kNow), Names{});
    EXPECT_EQ(readmit(report_of("n3", true), kNow), Names{});
    EXPECT_EQ(in_file(), Names{"n2"});
    EXPECT_EQ(readmit(report_of("n2", true), kNow), Names{"n2"});
    EXPECT_EQ(in_file(), Names{});
    EXPECT_TRUE(out_.nodes().empty());
  }
}

TEST_F(ExclusionsOfARun, ANodeThatIsLeftOutASecondTimeStaysOutUntilTheVerdictExpires) {
  out_.add("n2", ExclusionKind::Health, "sick", kNow, log_);
  readmit(report_of("n2", true), kNow);
  out_.add("n2", ExclusionKind::Health, "sick", kNow + 1, log_);
  EXPECT_EQ(readmit(report_of("n2", true), kNow + 2), Names{});
  // The node also stays out for the next supervisor.
  Exclusions later(dir_.path());
  const double after = kNow + 1 + kExclusionSeconds;
  EXPECT_TRUE(later.testable(after - 1).empty());
  EXPECT_TRUE(later.readmit({report_of("n2", false)}, after, log_).empty());
  EXPECT_EQ(later.readmit({report_of("n2", true)}, after, log_).size(), 1U);
  // A node that is excluded for another kind of reason may be tested again.
  out_.add("n2", ExclusionKind::Silence, "lost", after, log_);
  EXPECT_EQ(out_.testable(after), Names{"n2"});
}

TEST_F(ExclusionsOfARun, FaultsInARowExpireAndThenACheckDecides) {
  out_.add("n2", ExclusionKind::Faults, "killed", kNow, log_);
  EXPECT_EQ(readmit(report_of("n2", true), kNow + kExclusionSeconds - 1), Names{});
  const double after = kNow + kExclusionSeconds;
  EXPECT_EQ(readmit(report_of("n2", false), after), Names{});
  // The node failed the check, so it is left out for another day.
  EXPECT_TRUE(out_.add("n2", ExclusionKind::Faults, "killed", after, log_));
  EXPECT_FALSE(has_expired(out_.nodes().at(0), after));
  EXPECT_EQ(readmit(report_of("n2", true), after + kExclusionSeconds), Names{"n2"});
}

TEST_F(ExclusionsOfARun, WhatAPersonWroteStaysUntilAPersonTakesItOut) {
  write_file(dir_ / "excluded_nodes.json",
             R"([{"node": "n2", "since": 1.0, "cause": "I say so"}])");
  out_.read_again(log_);
  EXPECT_FALSE(out_.add("n2", ExclusionKind::Health, "sick", kNow, log_));
  EXPECT_EQ(readmit(report_of("n2", true), kNow + 10 * kExclusionSeconds), Names{});
  out_.add("n3", ExclusionKind::Health, "sick", kNow, log_);
  EXPECT_EQ(in_file(), (Names{"n2", "n3"}));
  EXPECT_EQ(read_text(dir_ / "excluded_nodes.json").find("person"), std::string::npos);
  write_file(dir_ / "excluded_nodes.json", "[]");
  out_.read_again(log_);
  EXPECT_TRUE(out_.nodes().empty());
}

TEST_F(ExclusionsOfARun, RoomOnAFileSystemSaysNothingOfTheNode) {
  out_.add("n2", ExclusionKind::Silence, "lost", kNow, log_);
  EXPECT_EQ(readmit(report_of("n2", false, /*of_file_system=*/true), kNow), Names{"n2"});
}

TEST_F(ExclusionsOfARun, WithoutARecordOfItNobodyIsPutInAgain) {
  out_.add("n2", ExclusionKind::Health, "sick", kNow, log_);
  fs::create_directories(dir_ / "control");
  write_file(dir_ / "control/readmitted_nodes.json", "no json");
  EXPECT_EQ(readmit(report_of("n2", true), kNow), Names{});
  EXPECT_EQ(in_file(), Names{"n2"});
  out_.add("n3", ExclusionKind::Health, "sick", kNow, log_);
  EXPECT_EQ(out_.testable(kNow), Names{"n2"});
}

TEST_F(ExclusionsOfARun, AClockThatWasFarAheadKeepsNobodyOutForEver) {
  out_.add("n2", ExclusionKind::Faults, "killed", kNow + 1e8, log_);
  EXPECT_EQ(readmit(report_of("n2", true), kNow), Names{"n2"});
}

}  // namespace
}  // namespace longhaul::cluster
