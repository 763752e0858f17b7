#include "longhaul/cluster/control/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <functional>
#include <map>
#include <thread>

#include "longhaul/cluster/control/channel_server.h"
#include "longhaul/cluster/control/control_session.h"
#include "longhaul/cluster/control/socket.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

using Kind = ChannelEvent::Kind;

/// Polls until `enough` holds for the events so far, for at most 10 seconds.
std::vector<ChannelEvent> poll_until(
    ChannelServer& server,
    const std::function<bool(const std::vector<ChannelEvent>&)>& enough) {
  std::vector<ChannelEvent> all;
  for (const system::Stopwatch watch; !enough(all) && watch.seconds() < 10.0;) {
    for (ChannelEvent& event : server.poll(0.1)) all.push_back(std::move(event));
  }
  return all;
}

auto at_least(size_t count) {
  return [count](const auto& events) { return events.size() >= count; };
}

/// Runs the server's loop for as long as `work` runs in another thread.
std::vector<ChannelEvent> serve_while(ChannelServer& server,
                                      const std::function<void()>& work) {
  bool done = false;
  std::thread thread([&] {
    work();
    __atomic_store_n(&done, true, __ATOMIC_RELEASE);
  });
  auto all = poll_until(
      server, [&](const auto&) { return __atomic_load_n(&done, __ATOMIC_ACQUIRE); });
  thread.join();
  return all;
}

TEST(Channel, CarriesMessagesBothWaysAndSaysGoodbye) {
  const Secret secret = Secret::make();
  ChannelServer server(secret, "127.0.0.1");
  EXPECT_EQ(server.host(), "127.0.0.1");
  std::optional<Channel> channel;
  auto events = serve_while(server, [&] {
    channel = Channel::connect("127.0.0.1", server.port(), secret, 5.0);
    channel->send({{"node", "n1"}, {"ranks", {0, 1}}});
  });
  if (events.size() < 2) {
    for (auto& event : poll_until(server, at_least(2 - events.size()))) {
      events.push_back(std::move(event));
    }
  }
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, Kind::Connected);
  EXPECT_EQ(events[1].message.at("node"), "n1");
  const uint64_t peer = events[0].peer;
  EXPECT_EQ(server.peers(), std::vector<uint64_t>{peer});

  ASSERT_TRUE(server.send(peer, {{"order", "start"}}));
  ASSERT_TRUE(server.send(peer, {{"order", "stop"}}));
  EXPECT_EQ(channel->receive(5.0)->at("order"), "start");
  EXPECT_EQ(channel->receive(0.0)->at("order"), "stop");
  EXPECT_EQ(channel->receive(0.0), std::nullopt);

  events = serve_while(server, [&] { channel->close(); });
  if (events.empty()) events = poll_until(server, at_least(1));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::Lost);
  EXPECT_TRUE(events[0].goodbye);
  EXPECT_FALSE(channel->is_open());
  EXPECT_FALSE(server.send(peer, {{"order", "start"}}));
  EXPECT_THROW(channel->receive(0.0), TemporaryError);
}

TEST(Channel, TellsALossFromAGoodbyeOnBothSides) {
  const Secret secret = Secret::make();
  auto server = std::make_unique<ChannelServer>(secret, "127.0.0.1");
  std::optional<Channel> gone;
  std::optional<Channel> stays;
  serve_while(*server, [&] {
    gone = Channel::connect("127.0.0.1", server->port(), secret, 5.0);
    stays = Channel::connect("127.0.0.1", server->port(), secret, 5.0);
  });
  poll_until(*server, [&](const auto&) { return server->peers().size() == 2; });
  gone.reset();  // the agent is killed
  const auto events = poll_until(*server, at_least(1));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::Lost);
  EXPECT_FALSE(events[0].goodbye);

  server.reset();  // the supervisor is killed
  EXPECT_HAS(message_of<TemporaryError>([&] { stays->receive(5.0); }), "is lost");
  EXPECT_EQ(stays->fd(), -1);
  EXPECT_THROW(stays->send({{"a", 1}}), TemporaryError);
}

TEST(Channel, CarriesTheLongestMessageAndRefusesALongerOne) {
  const Secret secret = Secret::make();
  ChannelServer server(secret, "127.0.0.1");
  const Json longest = std::string(kMaxMessageBytes - 2, 'x');
  auto events = serve_while(server, [&] {
    Channel channel = Channel::connect("127.0.0.1", server.port(), secret, 5.0);
    channel.send(longest);
    EXPECT_THROW(channel.send(std::string(kMaxMessageBytes - 1, 'x')), Error);
    channel.send("after it");
    channel.close();
  });
  for (auto& event : poll_until(
           server, [&](const auto& more) { return events.size() + more.size() >= 4; })) {
    events.push_back(std::move(event));
  }
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[1].message, longest);
  EXPECT_EQ(events[2].message, "after it");
  EXPECT_TRUE(events[3].goodbye);
}

TEST(Channel, TriesUntilSomebodyListensAndSaysWhyNobodyDoes) {
  const Secret secret = Secret::make();
  int port = 0;
  {
    const ChannelServer closed(secret, "127.0.0.1");
    port = closed.port();
  }
  const system::Stopwatch watch;
  EXPECT_HAS(message_of<TemporaryError>(
                 [&] { Channel::connect("127.0.0.1", port, secret, 0.3); }),
             "Connection refused");
  EXPECT_LT(watch.seconds(), 2.0);
  EXPECT_HAS(message_of<TemporaryError>(
                 [&] { Channel::connect("no-such-host.invalid", port, secret, 0.1); }),
             "no-such-host.invalid");

  std::optional<Channel> channel;
  std::thread agent([&] { channel = Channel::connect("127.0.0.1", port, secret, 10.0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  ChannelServer server(secret, "127.0.0.1", port);
  EXPECT_EQ(poll_until(server, at_least(1)).size(), 1U);
  agent.join();
  EXPECT_TRUE(channel && channel->is_open());
}

TEST(Channel, RefusesASupervisorOfAnotherJobAtOnce) {
  ChannelServer server(Secret::make(), "127.0.0.1");
  serve_while(server, [&] {
    const system::Stopwatch watch;
    EXPECT_HAS(message_of<InputError>([&] {
                 Channel::connect("127.0.0.1", server.port(), Secret::make(), 30.0);
               }),
               "does not know this job's secret");
    EXPECT_LT(watch.seconds(), 5.0);
  });
  poll_until(server, [&](const auto&) { return server.refused() == 1; });
  EXPECT_EQ(server.refused(), 1U);
  EXPECT_TRUE(server.peers().empty());
}

TEST(ChannelServer, ListensAtOneAddressOnly) {
  const Secret secret = Secret::make();
  ChannelServer server(secret, "127.0.0.1");
  EXPECT_EQ(server.host(), "127.0.0.1");
  // 127.0.0.2 is this machine as well, but nobody listens there.
  EXPECT_HAS(message_of<TemporaryError>(
                 [&] { Channel::connect("127.0.0.2", server.port(), secret, 0.2); }),
             "Connection refused");
  EXPECT_HAS(message_of<ConfigError>([&] { ChannelServer(secret, "192.0.2.7"); }),
             "cannot listen at 192.0.2.7");
  EXPECT_HAS(
      message_of<ConfigError>([&] { ChannelServer(secret, "127.0.0.1", server.port()); }),
      "cannot listen");
  EXPECT_EQ(own_address_towards("127.0.0.1"), "127.0.0.1");
}

TEST(ChannelServer, DropsAPeerThatTakesNothingAndNeverWaitsForIt) {
  const Secret secret = Secret::make();
  ChannelLimits limits;
  limits.max_unsent_bytes = size_t{8} << 20;
  ChannelServer server(secret, "127.0.0.1", 0, limits);
  std::optional<Channel> deaf;
  serve_while(server,
              [&] { deaf = Channel::connect("127.0.0.1", server.port(), secret, 5.0); });
  poll_until(server, [&](const auto&) { return server.peers().size() == 1; });
  const uint64_t peer = server.peers().at(0);
  const Json message = std::string(size_t{1} << 20, 'x');
  int sent = 0;
  const system::Stopwatch watch;
  while (sent < 100 && server.send(peer, message)) ++sent;
  EXPECT_GT(sent, 7);
  EXPECT_LT(sent, 100);
  EXPECT_LT(watch.seconds(), 5.0);
  const auto events = server.poll(0.0);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_HAS(events[0].reason, "unread");
}

TEST(ChannelServer, ServesFiveHundredAgentsWithOneThread) {
  constexpr size_t kAgents = 500;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 2 * kAgents + 64) GTEST_SKIP() << "too few descriptors";
  const Secret secret = Secret::make();
  ChannelServer server(secret, "127.0.0.1");
  std::vector<Channel> agents;
  size_t answers = 0;
  std::map<uint64_t, Json> said;
  const auto events = serve_while(server, [&] {
    for (size_t i = 0; i < kAgents; ++i) {
      agents.push_back(Channel::connect("127.0.0.1", server.port(), secret, 5.0));
      agents.back().send({{"agent", i}});
    }
  });
  for (const auto& event : events) {
    if (event.kind == Kind::Message) said[event.peer] = event.message;
  }
  for (const auto& event : poll_until(server, [&](const auto& more) {
         return said.size() + more.size() >= kAgents;
       })) {
    if (event.kind == Kind::Message) said[event.peer] = event.message;
  }
  ASSERT_EQ(said.size(), kAgents);
  for (const auto& [peer, message] : said) server.send(peer, message);
  for (size_t i = 0; i < kAgents; ++i) {
    const auto answer = agents[i].receive(5.0);
    answers += answer && answer->at("agent") == i ? 1 : 0;
  }
  EXPECT_EQ(answers, kAgents) << "each gets its own message back";
}

}  // namespace
}  // namespace longhaul::cluster
