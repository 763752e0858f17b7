#include "longhaul/run/run_status.h"

#include <gtest/gtest.h>

namespace longhaul::run {
namespace {

std::string cut(std::string_view text, size_t longest) {
  return std::string(text.substr(0, longest));
}

RunStatus full_status() {
  RunStatus status;
  status.state = "training";
  status.since = 1.5;
  status.updated = 2.5;
  status.job = "118";
  status.host = "n1";
  status.process = 77;
  status.restarts = 2;
  status.max_restarts = 10;
  status.cause = "rank 3 on n2 was killed";
  status.nodes = {{"n2", "up", {2, 3}, 100, 200, 0.25, {{"H100", 1, 80, 0.5}}}};
  status.ranks = {{3, "n2", 4711, "pp 0 dp 1 cp 0 tp 1", "gradients", 12, 0.5, 0.75,
                   "all_reduce", 1.25, "stopped"}};
  return status;
}

TEST(RunStatus, ReadsEveryMemberThatItWrites) {
  const Json written = full_status().to_json();
  const RunStatus read = RunStatus::from_json(written, cut);
  EXPECT_EQ(read.to_json(), written);
  // Each member has a value of its own, so that none is left out or taken for another.
  EXPECT_EQ(read.nodes.at(0).devices.at(0).memory_total_bytes, 80);
  EXPECT_EQ(read.ranks.at(0).process, 4711);
  EXPECT_EQ(read.ranks.at(0).process_state, "stopped");
  EXPECT_EQ(read.ranks.at(0).wall_seconds, 0.75);
}

TEST(RunStatus, LeavesWhatIsAbsentOrOfAnotherTypeAtItsDefault) {
  for (const char* text : {"[]", "7", "null", "{}", R"({"nodes": 3, "ranks": {"a": 1}})",
                           R"({"state": [1], "pid": "x", "since": null})"}) {
    const RunStatus status = RunStatus::from_json(Json::parse(text), cut);
    EXPECT_EQ(status.to_json(), RunStatus().to_json()) << text;
  }
  Json half = full_status().to_json();
  half["nodes"][0]["devices"] = Json::array({7, Json::object()});
  half["nodes"][0]["ranks"] = Json::array({1, "x", 2.5});
  half["ranks"][0].erase("pid");
  const RunStatus status = RunStatus::from_json(half, cut);
  ASSERT_EQ(status.nodes.at(0).devices.size(), 1U);
  EXPECT_LT(status.nodes[0].devices[0].busy, 0.0);
  EXPECT_EQ(status.nodes[0].ranks, std::vector<int64_t>{1});
  EXPECT_EQ(status.ranks.at(0).process, 0);
}

TEST(RunStatus, EveryTextGoesThroughTheFilterWithItsLimit) {
  Json json = full_status().to_json();
  json["cause"] = std::string(10'000, 'x');
  json["ranks"][0]["waits_for"] = std::string(10'000, 'y');
  const RunStatus status = RunStatus::from_json(json, cut);
  EXPECT_EQ(status.cause.size(), 400U);
  EXPECT_EQ(status.ranks.at(0).waits_for.size(), 200U);
  const RunStatus silent =
      RunStatus::from_json(json, [](std::string_view, size_t) { return std::string(); });
  EXPECT_EQ(silent.to_json().dump().find("n2"), std::string::npos);
  EXPECT_EQ(silent.to_json().dump().find("H100"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::run
