// Peers that do not know the secret or break the protocol on purpose: each is refused
// within its deadline, and an honest agent gets in meanwhile.
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <thread>

#include "longhaul/cluster/control/channel.h"
#include "longhaul/cluster/control/channel_server.h"
#include "longhaul/cluster/control/control_session.h"
#include "longhaul/cluster/control/socket.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

ChannelLimits quick_limits() {
  ChannelLimits limits;
  limits.handshake_seconds = 0.3;
  limits.max_pending = 8;
  return limits;
}

class Hostile : public ::testing::Test {
 protected:
  Hostile() : server_(secret_, "127.0.0.1", 0, quick_limits()) {}

  /// Returns a connection on which a test may send any bytes.
  Descriptor connect() {
    std::string why;
    auto socket = start_connect(resolve("127.0.0.1", server_.port()).front(), why);
    EXPECT_TRUE(socket) << why;
    return std::move(*socket);
  }
  static void say(const Descriptor& socket, std::string_view text) {
    size_t count = 0;
    std::string why;
    pollfd one{socket.get(), POLLOUT, 0};
    ::poll(&one, 1, 1000);
    ASSERT_EQ(write_some(socket.get(), text, count, why), IoResult::Done) << why;
    ASSERT_EQ(count, text.size());
  }

  void poll_until(const std::function<bool()>& enough, double seconds = 5.0) {
    for (const system::Stopwatch watch; !enough() && watch.seconds() < seconds;) {
      for (ChannelEvent& event : server_.poll(0.02)) events_.push_back(std::move(event));
    }
  }
  void expect_refused(uint64_t count, const std::string& reason) {
    const system::Stopwatch watch;
    poll_until([&] { return server_.refused() >= count; });
    EXPECT_EQ(server_.refused(), count);
    EXPECT_HAS(server_.last_refusal(), reason);
    EXPECT_LT(watch.seconds(), 1.0);
    EXPECT_TRUE(server_.peers().empty());
    EXPECT_TRUE(events_.empty()) << "nobody hears of one who has proved nothing";
  }
  /// Returns the seconds that an honest agent needs to connect and be heard.
  double honest_agent_gets_in() {
    const system::Stopwatch watch;
    bool done = false;
    std::thread agent([&] {
      Channel channel = Channel::connect("127.0.0.1", server_.port(), secret_, 10.0);
      channel.send("honest");
      channel.receive(0.0);
      __atomic_store_n(&done, true, __ATOMIC_RELEASE);
      channel.close();
    });
    const auto heard = [&] {
      return std::ranges::any_of(
          events_, [](const ChannelEvent& event) { return event.message == "honest"; });
    };
    poll_until(heard, 12.0);
    const double seconds = watch.seconds();
    EXPECT_TRUE(heard());
    poll_until([&] { return server_.peers().empty(); });
    agent.join();
    return seconds;
  }

  Secret secret_ = Secret::make();
  ChannelServer server_;
  std::vector<ChannelEvent> events_;
};

TEST_F(Hostile, GarbageIsRefused) {
  const Descriptor peer = connect();
  say(peer, std::string(4096, '\xFF'));
  expect_refused(1, "does not speak the protocol");
  EXPECT_LT(honest_agent_gets_in(), 5.0);
}

TEST_F(Hostile, SilenceIsRefusedInTime) {
  const Descriptor peer = connect();
  expect_refused(1, "it did not prove that it knows the job's secret within 0.3 s");
}

TEST_F(Hostile, SlowBytesGainNoTime) {
  const Descriptor peer = connect();
  const system::Stopwatch watch;
  for (size_t i = 0; server_.refused() == 0 && watch.seconds() < 3.0; ++i) {
    size_t count = 0;
    std::string why;
    // Sends the start of a correct hello, one byte at a time.
    write_some(peer.get(),
               std::string_view("LHCTRL01aaaaaaaaaaaaaaaaaaaa").substr(i % 28, 1), count,
               why);
    server_.poll(0.02);
  }
  EXPECT_EQ(server_.refused(), 1U);
  EXPECT_LT(watch.seconds(), 1.0);
}

TEST_F(Hostile, AnEndInTheMiddleOfTheHandshakeIsRefused) {
  {
    const Descriptor peer = connect();
    say(peer, "LHCTRL01" + std::string(10, 'c'));
  }
  expect_refused(1, "closed it");
}

TEST_F(Hostile, AProofWithoutTheSecretIsRefused) {
  const Descriptor peer = connect();
  say(peer, "LHCTRL01" + std::string(32, 'c') + std::string(56, 'p'));
  expect_refused(1, "does not know this job's secret");
}

TEST_F(Hostile, AnHonestAgentGetsInThroughACrowdThatSaysNothing) {
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(connect());
  server_.poll(0.0);
  // The server keeps at most eight connections without a proof, each for 0.3 s.
  EXPECT_LT(honest_agent_gets_in(), 6.0);
  EXPECT_GE(server_.refused(), 32U);
}

TEST_F(Hostile, AnAuthenticPeerThatSendsNoJsonIsDropped) {
  ControlSession session(ControlRole::Connects, secret_);
  const Descriptor peer = connect();
  const auto turn = [&] {
    std::array<std::byte, 4096> bytes;
    size_t count = 0;
    std::string why;
    if (!session.output().empty()) {
      say(peer, session.output());
      session.written(session.output().size());
    }
    for (ChannelEvent& event : server_.poll(0.02)) events_.push_back(std::move(event));
    if (read_some(peer.get(), bytes, count, why) == IoResult::Done) {
      session.feed(std::span(bytes).first(count));
    }
  };
  for (int i = 0; i < 50 && !session.established(); ++i) turn();
  ASSERT_TRUE(session.established());
  session.send("{\"deep\": " + std::string(1000, '['));
  for (int i = 0; i < 50 && events_.size() < 2; ++i) turn();
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_EQ(events_[0].kind, ChannelEvent::Kind::Connected);
  EXPECT_EQ(events_[1].kind, ChannelEvent::Kind::Lost);
  EXPECT_HAS(events_[1].reason, "a control message from 127.0.0.1");
}

/// An attacker on the wire, who hears what an honest agent says and repeats it in another
/// order.
class OnTheWire : public Hostile {
 protected:
  /// Lets the server's answers reach the agent, and keeps what the agent says.
  void turn() {
    std::array<std::byte, 4096> bytes;
    size_t count = 0;
    std::string why;
    for (ChannelEvent& event : server_.poll(0.02)) events_.push_back(std::move(event));
    if (read_some(wire_->get(), bytes, count, why) == IoResult::Done) {
      agent_.feed(std::span(bytes).first(count));
    }
  }
  std::string next_words() {
    std::string words(agent_.output());
    agent_.written(words.size());
    return words;
  }
  /// Returns the agent's bytes of a handshake.
  std::string shake_hands() {
    wire_.emplace(connect());
    std::string all;
    for (int i = 0; i < 50 && !agent_.established(); ++i) {
      const std::string words = next_words();
      all += words;
      if (!words.empty()) say(*wire_, words);
      turn();
    }
    EXPECT_TRUE(agent_.established());
    return all;
  }
  std::string sealed(const std::string& json) {
    agent_.send(json);
    return next_words();
  }
  /// Sends these bytes, and waits until the server has heard one more message.
  void deliver(const std::string& words) {
    const size_t before = events_.size();
    say(*wire_, words);
    for (int i = 0; i < 100 && events_.size() == before; ++i) turn();
  }
  /// Expects that the server took these messages, in this order, and then dropped the
  /// connection because its bytes were not authentic.
  void expect(const std::vector<std::string>& taken) {
    for (int i = 0; i < 100 && (events_.empty() || events_.back().reason.empty()); ++i) {
      turn();
    }
    std::vector<std::string> messages;
    for (const ChannelEvent& event : events_) {
      if (event.kind == ChannelEvent::Kind::Message) {
        messages.push_back(event.message.get<std::string>());
      }
    }
    EXPECT_EQ(messages, taken);
    ASSERT_EQ(events_.back().kind, ChannelEvent::Kind::Lost);
    EXPECT_FALSE(events_.back().goodbye);
    EXPECT_HAS(events_.back().reason, "not authentic");
  }

  ControlSession agent_{ControlRole::Connects, secret_};
  std::optional<Descriptor> wire_;
};

TEST_F(OnTheWire, AMessageThatIsSentAgainIsRefused) {
  shake_hands();
  const std::string first = sealed("\"first\"");
  deliver(first);
  deliver(sealed("\"second\""));
  say(*wire_, first);
  expect({"first", "second"});
}

TEST_F(OnTheWire, MessagesInAnotherOrderAreRefused) {
  shake_hands();
  deliver(sealed("\"first\""));
  const std::string second = sealed("\"second\"");
  say(*wire_, sealed("\"third\"") + second);
  expect({"first"});
}

TEST_F(OnTheWire, AMessageThatIsLeftOutIsNoticedAtTheNext) {
  shake_hands();
  deliver(sealed("\"first\""));
  sealed("\"second\"");
  say(*wire_, sealed("\"third\""));
  expect({"first"});
}

TEST_F(OnTheWire, ARecordedConnectionIsWorthNothingInAnother) {
  std::string recorded = shake_hands();
  recorded += sealed("\"first\"");
  const Descriptor again = connect();
  say(again, recorded);
  poll_until([&] { return server_.refused() > 0; });
  EXPECT_EQ(server_.refused(), 1U);
  EXPECT_HAS(server_.last_refusal(), "does not know this job's secret");
  EXPECT_TRUE(std::ranges::none_of(events_, [](const ChannelEvent& event) {
    return event.kind == ChannelEvent::Kind::Message;
  }));
}

TEST_F(Hostile, AHugeLengthFromAnAuthenticPeerIsRefused) {
  Channel channel = [&] {
    std::optional<Channel> made;
    std::thread agent(
        [&] { made = Channel::connect("127.0.0.1", server_.port(), secret_, 5.0); });
    poll_until([&] { return !server_.peers().empty(); });
    agent.join();
    return std::move(*made);
  }();
  size_t count = 0;
  std::string why;
  write_some(channel.fd(), "\xFF\xFF\xFF\x7F", count, why);
  poll_until([&] { return events_.size() >= 2; });
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_EQ(events_[1].kind, ChannelEvent::Kind::Lost);
  EXPECT_HAS(events_[1].reason, "announced a message of 2147483647 bytes");
}

/// A listener that answers as it likes, for the connecting side.
class FalseServer {
 public:
  FalseServer() : socket_(listen_at(resolve("127.0.0.1", 0).front())) {}
  int port() const { return bound_address(socket_.get()).port(); }
  Descriptor accept() {
    pollfd one{socket_.get(), POLLIN, 0};
    ::poll(&one, 1, 2000);
    return Descriptor(::accept(socket_.get(), nullptr, nullptr));
  }

 private:
  Descriptor socket_;
};

TEST(HostileServer, SilenceEndsTheConnectInTime) {
  FalseServer server;
  const system::Stopwatch watch;
  EXPECT_HAS(message_of<TemporaryError>([&] {
               Channel::connect("127.0.0.1", server.port(), Secret::make(), 0.5);
             }),
             "the handshake took too long");
  EXPECT_LT(watch.seconds(), 2.0);
}

TEST(HostileServer, AnAnswerWithoutTheSecretIsRefusedBeforeAnythingIsSaid) {
  FalseServer server;
  std::string heard;
  std::thread thread([&] {
    const Descriptor peer = server.accept();
    size_t count = 0;
    std::string why;
    write_some(peer.get(), "LHCTRL01" + std::string(64, 's'), count, why);
    std::array<std::byte, 4096> bytes;
    while (read_some(peer.get(), bytes, count, why) == IoResult::Done) {
      heard.append(reinterpret_cast<const char*>(bytes.data()), count);
    }
  });
  EXPECT_HAS(message_of<InputError>([&] {
               Channel::connect("127.0.0.1", server.port(), Secret::make(), 5.0);
             }),
             "does not know this job's secret");
  thread.join();
  EXPECT_EQ(heard.size(), 40U) << "a proof for an impostor's use";
}

}  // namespace
}  // namespace longhaul::cluster
