#include "longhaul/cluster/agent/agent_fleet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/cluster/control/channel.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

/// A fleet of one node, whose agent is this test.
class OneNode {
 public:
  /// `second` is the command that stands for the agent when the agent is started again.
  explicit OneNode(std::vector<std::string> second) {
    AgentFleetOptions options;
    options.here = "localhost";
    options.nodes = {"localhost"};
    options.program = "longhaul";
    options.run_dir = dir_.path();
    options.usable = [](const std::vector<std::string>& nodes) { return nodes; };
    options.start_agent = [this, second](const std::string&,
                                         std::vector<std::string> words,
                                         const Secret& secret) {
      ++starts_;
      words_ = std::move(words);
      secret_.emplace(secret);
      JobStep step = JobStep::start(
          starts_ == 1 ? std::vector<std::string>{"sleep", "60"} : second, {});
      process_ = static_cast<pid_t>(step.pid());
      return step;
    };
    fleet_.emplace(std::move(options));
  }

  void connect() {
    // The handshake needs both ends at once, so the client has a thread of its own.
    std::optional<Channel> agent;
    std::jthread client([&] { agent.emplace(open()); });
    const system::Stopwatch watch;
    while (fleet_->usable_nodes(0.1).empty() && watch.seconds() < 10.0) {
    }
    client.join();
    channel_ = std::move(agent);
  }
  /// Connects and answers one order for a health check. Runs on a thread of its own.
  void answer_health(const std::string& name) {
    Channel agent = open();
    const system::Stopwatch watch;
    while (watch.seconds() < 10.0) {
      const auto order = agent.receive(0.1);
      if (!order || order->value("order", "") != "health") continue;
      HealthReport report;
      report.node = name;
      agent.send({{"health", report.to_json()}});
      agent.close();
      return;
    }
  }
  void lose_agent() {
    ::kill(process_, SIGKILL);
    channel_.reset();
  }
  std::vector<std::string> lost_within(double seconds) {
    const system::Stopwatch watch;
    while (watch.seconds() < seconds) {
      fleet_->wait(0.05);
      if (auto lost = fleet_->lost_nodes(); !lost.empty()) return lost;
    }
    return {};
  }
  int starts() const { return starts_; }
  AgentFleet& fleet() { return *fleet_; }

 private:
  Channel open() {
    const auto after = [&](const char* name) {
      return *(std::ranges::find(words_, name) + 1);
    };
    Channel agent =
        Channel::connect(after("--host"), std::stoi(after("--port")), *secret_, 10.0);
    agent.send({{"hello", "localhost"}});
    return agent;
  }

  TestDirectory dir_;
  int starts_ = 0;
  pid_t process_ = 0;
  std::vector<std::string> words_;
  std::optional<Secret> secret_;
  std::optional<AgentFleet> fleet_;
  std::optional<Channel> channel_;
};

TEST(AgentFleet, AnAgentThatDiesAloneIsStartedAgain) {
  OneNode node({"sleep", "60"});
  node.connect();
  EXPECT_EQ(node.fleet().usable_nodes(0), std::vector<std::string>{"localhost"});
  node.lose_agent();
  EXPECT_TRUE(node.lost_within(3.0).empty());
  EXPECT_EQ(node.starts(), 2);
  node.connect();
  EXPECT_TRUE(node.lost_within(1.0).empty());
  EXPECT_EQ(node.fleet().usable_nodes(0), std::vector<std::string>{"localhost"});
}

TEST(AgentFleet, AHealthCheckWaitsForAgentsThatAreOnTheirWay) {
  OneNode node({"false"});
  std::jthread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    node.answer_health("n1");
  });
  HealthOptions options;
  const auto reports = node.fleet().check_health({}, options, 10.0);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].node, "n1");
}

TEST(AgentFleet, ANodeOnWhichNoAgentStartsAgainIsLost) {
  OneNode node({"false"});
  node.connect();
  node.lose_agent();
  EXPECT_EQ(node.lost_within(10.0), std::vector<std::string>{"localhost"});
  EXPECT_EQ(node.starts(), 2);
  EXPECT_TRUE(node.lost_within(0.3).empty()) << "told once";
}

TEST(AgentFleet, AnAgentThatLeavesWhileAnotherIsLostIsNotedToo) {
  const TestDirectory dir;
  std::map<std::string, std::vector<std::string>> words;
  std::optional<Secret> secret;
  AgentFleetOptions options;
  options.here = "localhost";
  options.nodes = {"localhost", "127.0.0.1", "never"};
  options.not_awaited = {"never"};
  options.program = "longhaul";
  options.run_dir = dir.path();
  options.usable = [](const std::vector<std::string>& nodes) { return nodes; };
  options.start_agent = [&](const std::string& node, std::vector<std::string> of_agent,
                            const Secret& shared) {
    words[node] = std::move(of_agent);
    secret.emplace(shared);
    return JobStep::start({"sleep", "60"}, {});
  };
  AgentFleet fleet(std::move(options));
  std::map<std::string, std::optional<Channel>> agents;
  {
    std::jthread client([&] {
      for (const char* node : {"localhost", "127.0.0.1"}) {
        const auto after = [&](const char* name) {
          return *(std::ranges::find(words[node], name) + 1);
        };
        agents[node].emplace(
            Channel::connect(after("--host"), std::stoi(after("--port")), *secret, 10.0));
        agents[node]->send({{"hello", node}});
      }
    });
    const system::Stopwatch watch;
    EXPECT_EQ(fleet.usable_nodes(10.0).size(), 2U);
    EXPECT_LT(watch.seconds(), 9.0) << "nobody waits for a node that is left out";
  }
  // The step lives, so the fleet waits for two seconds to see whether the agent died
  // alone. Meanwhile another agent leaves.
  agents["127.0.0.1"].reset();
  std::jthread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    agents["localhost"]->close();
  });
  const system::Stopwatch watch;
  while (fleet.lost_nodes().empty() && watch.seconds() < 10.0) fleet.wait(0.05);
  fleet.wait(0.3);
  EXPECT_TRUE(fleet.usable_nodes(0).empty());
}

TEST(AgentFleet, NodesThatAreLostTogetherAreWaitedForTogether) {
  const TestDirectory dir;
  std::vector<std::string> words;
  std::optional<Secret> secret;
  AgentFleetOptions options;
  options.here = "127.0.1.1";
  for (int node = 1; node <= 6; ++node) {
    options.nodes.push_back(fmt::format("127.0.1.{}", node));
  }
  options.program = "longhaul";
  options.run_dir = dir.path();
  options.usable = [](const std::vector<std::string>& nodes) { return nodes; };
  options.start_agent = [&](const std::string&, std::vector<std::string> of_agent,
                            const Secret& shared) {
    words = std::move(of_agent);
    secret.emplace(shared);
    return JobStep::start({"sleep", "60"}, {});
  };
  const std::vector<std::string> nodes = options.nodes;
  AgentFleet fleet(std::move(options));
  std::vector<Channel> agents;
  {
    std::jthread client([&] {
      const auto after = [&](const char* name) {
        return *(std::ranges::find(words, name) + 1);
      };
      for (const std::string& node : nodes) {
        agents.push_back(
            Channel::connect(after("--host"), std::stoi(after("--port")), *secret, 10.0));
        agents.back().send({{"hello", node}});
      }
    });
    EXPECT_EQ(fleet.usable_nodes(10.0).size(), nodes.size());
  }
  agents.clear();
  const system::Stopwatch watch;
  size_t lost = 0;
  while (lost < nodes.size() && watch.seconds() < 20.0) {
    fleet.wait(0.05);
    lost += fleet.lost_nodes().size();
  }
  EXPECT_EQ(lost, nodes.size());
  EXPECT_LT(watch.seconds(), 8.0) << "two seconds, not for each of six";
}

TEST(AgentFleet, TheMoreAgentsThereAreTheLessOftenEachReports) {
  EXPECT_EQ(report_seconds(1), 0.5);
  EXPECT_EQ(report_seconds(512), 0.5);
  EXPECT_EQ(report_seconds(2048), 1.0);
  EXPECT_EQ(report_seconds(4096), 2.0);
  EXPECT_EQ(report_seconds(100'000), 2.0) << "longer would look like a node that is lost";
}

TEST(AgentFleet, AsksTheKernelForTheConnectionsThatItNeeds) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto start = [](size_t agents) {
    AgentFleetOptions options;
    options.here = "localhost";
    options.nodes = std::vector<std::string>(agents, "localhost");
    options.start_agent = [](const std::string&, const std::vector<std::string>&,
                             const Secret&) { return JobStep::start({"false"}, {}); };
    const AgentFleet fleet(std::move(options));
  };
  const rlimit tight = {300, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  start(30);
  rlimit after{};
  ::getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, 256U + 3U * 30U);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THROW(start(before.rlim_max), ConfigError);
}

}  // namespace
}  // namespace longhaul::cluster
