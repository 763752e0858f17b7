#include "longhaul/cluster/health/peers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "longhaul/cluster/health/findings.h"

namespace longhaul::cluster {
namespace {

using Names = std::vector<std::string>;

HealthReport report(const std::string& node, const Names& unreached = {}) {
  HealthCheck check;
  if (!unreached.empty()) check = HealthCheck::failed("does not reach some");
  check.name = kPeersCheck;
  check.values = {{"unreached", unreached}};
  return {node, 0.0, {check}};
}

Names sick_of(std::vector<HealthReport> reports, const std::set<std::string>& out = {},
              const std::string& here = "n1") {
  EXPECT_TRUE(judge_peers(reports, out, here).empty());
  Names names;
  for (const SickNode& sick : judge_health(reports).sick) names.push_back(sick.node);
  return names;
}

TEST(Peers, OfTwoNodesThatLostEachOtherOneIsLeftOut) {
  std::vector<HealthReport> reports = {report("n1"), report("n2", {"n3"}),
                                       report("n3", {"n2"}), report("n4")};
  EXPECT_TRUE(judge_peers(reports, {}, "n1").empty());
  const Findings found = judge_health(reports);
  ASSERT_EQ(found.sick.size(), 1U);
  EXPECT_EQ(found.sick[0].node, "n3");
  EXPECT_EQ(found.sick[0].cause,
            "peers: n2 and n3 do not reach each other (tried from n2 to n3, n3 to n2)");
  EXPECT_TRUE(found.shared.empty());
  // n2 passes the check, so that a run that needs a node may use n2.
  EXPECT_TRUE(reports[1].ok());
  EXPECT_FALSE(reports[2].ok());
}

TEST(Peers, OneEndThatTellsIsEnough) {
  EXPECT_EQ(sick_of({report("n1"), report("n2", {"n3"}), report("n3")}), Names{"n3"});
  // Only one node was asked.
  EXPECT_EQ(sick_of({report("n2", {"n3"}), report("n1"), report("n4")}), Names{"n3"});
}

TEST(Peers, TheSupervisorsNodeStaysAndWhoIsOutStaysOut) {
  EXPECT_EQ(sick_of({report("n1"), report("n2", {"n3"}), report("n3")}, {}, "n3"),
            Names{"n2"});
  EXPECT_EQ(sick_of({report("n1"), report("n2", {"n3"}), report("n3")}, {"n2"}, "n1"),
            Names{"n2"});
}

TEST(Peers, TheNodeThatLostItsWayToMostOthersIsAtFault) {
  EXPECT_EQ(sick_of({report("n1", {"n2"}), report("n2", {"n1", "n3", "n4"}),
                     report("n3", {"n2"}), report("n4")}),
            Names{"n2"});
}

TEST(Peers, ANetworkThatRefusesSuchConnectionsBlamesNobody) {
  std::vector<HealthReport> reports = {
      report("n1", {"n2", "n3"}), report("n2", {"n1", "n3"}), report("n3", {"n1", "n2"})};
  const Names shared = judge_peers(reports, {}, "n1");
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_EQ(shared[0].find("peers: n1 and n2 do not reach each other"), 0U);
  EXPECT_TRUE(judge_health(reports).sick.empty());
  // With two nodes nothing tells which of them is at fault.
  reports = {report("n1", {"n2"}), report("n2", {"n1"})};
  EXPECT_EQ(judge_peers(reports, {}, "n1").size(), 1U);
  EXPECT_TRUE(judge_health(reports).sick.empty());
}

TEST(Peers, WordsOfAnotherProgramAreNoFinding) {
  std::vector<HealthReport> reports = {report("n1"), report("n2", {"n3"}), report("n3")};
  reports[1].checks[0].values = {{"unreached", Json::array({7, Json::object()})}};
  EXPECT_TRUE(judge_peers(reports, {}, "n1").empty());
  EXPECT_TRUE(judge_health(reports).sick.empty());
}

TEST(Peers, ANodeIsReachedWhereItsDoorIsOrWasAndNotWhereNobodyAnswers) {
  const PeerDoor door("127.0.0.1");
  PeerNode gone = PeerDoor("127.0.0.1").at("n3");  // closed at once: refused
  const HealthCheck good = check_peers({door.at("n2"), gone}, 10.0);
  EXPECT_FALSE(good.has_failed()) << good.text;
  EXPECT_EQ(good.text, "reaches 2 other nodes");
  door.turn_away();
  // A door whose queue is full lets nobody in and says nothing.
  const Descriptor full = listen_at(resolve("127.0.0.1", 0).at(0));
  ::listen(full.get(), 0);
  const PeerNode silent{"n4", "127.0.0.1", bound_address(full.get()).port()};
  check_peers({silent}, 0.2);
  std::vector<Descriptor> queue;
  for (int i = 0; i < 4; ++i) {
    std::string why;
    queue.push_back(std::move(*start_connect(bound_address(full.get()), why)));
  }
  const HealthCheck bad = check_peers({door.at("n2"), silent}, 0.2);
  EXPECT_TRUE(bad.has_failed());
  EXPECT_EQ(bad.values.at("unreached"), Json::array({"n4"}));
  EXPECT_EQ(
      bad.text,
      "does not reach n4 at 127.0.0.1 (no answer within 0.2 s); look at the network");
}

}  // namespace
}  // namespace longhaul::cluster
