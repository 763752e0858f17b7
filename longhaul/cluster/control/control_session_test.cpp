#include "longhaul/cluster/control/control_session.h"

#include <gtest/gtest.h>
#include <sodium.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

using namespace std::string_literals;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Takes the bytes that one side has for the other.
std::string take_output(ControlSession& from) {
  std::string bytes(from.output());
  from.written(bytes.size());
  return bytes;
}

/// Carries bytes between the two sides until neither has more.
void exchange(ControlSession& a, ControlSession& b) {
  for (int turn = 0; turn < 8; ++turn) {
    b.feed(bytes_of(take_output(a)));
    a.feed(bytes_of(take_output(b)));
  }
}

struct Pair {
  explicit Pair(const Secret& secret)
      : near(ControlRole::Connects, secret), far(ControlRole::Accepts, secret) {}
  Pair() : Pair(Secret::make()) { exchange(near, far); }
  ControlSession near;
  ControlSession far;
};

TEST(ControlSession, CarriesMessagesBothWaysInOrder) {
  Pair pair;
  ASSERT_TRUE(pair.near.established());
  ASSERT_TRUE(pair.far.established());
  pair.near.send("one");
  pair.near.send("");
  pair.near.send(std::string(kMaxMessageBytes, 'x'));
  pair.far.send("back");
  exchange(pair.near, pair.far);
  EXPECT_EQ(pair.far.take_message(), "one");
  EXPECT_EQ(pair.far.take_message(), "");
  EXPECT_EQ(pair.far.take_message(), std::string(kMaxMessageBytes, 'x'));
  EXPECT_EQ(pair.far.take_message(), std::nullopt);
  EXPECT_EQ(pair.near.take_message(), "back");
}

TEST(ControlSession, WorksWhenEveryByteComesAlone) {
  const Secret secret = Secret::make();
  ControlSession near(ControlRole::Connects, secret);
  ControlSession far(ControlRole::Accepts, secret);
  const auto drip = [](ControlSession& from, ControlSession& to) {
    for (const char byte : take_output(from)) to.feed(bytes_of({&byte, 1}));
  };
  for (int turn = 0; turn < 3; ++turn) {
    drip(near, far);
    drip(far, near);
  }
  near.send("slowly");
  drip(near, far);
  EXPECT_EQ(far.take_message(), "slowly");
}

TEST(ControlSession, ShowsNothingOfAMessageOrTheSecretOnTheWire) {
  const Secret secret = Secret::make();
  ControlSession near(ControlRole::Connects, secret);
  ControlSession far(ControlRole::Accepts, secret);
  std::string wire = take_output(near);
  far.feed(bytes_of(wire));
  const std::string answer = take_output(far);
  near.feed(bytes_of(answer));
  wire += answer + take_output(near);
  const std::string raw(reinterpret_cast<const char*>(secret.bytes().data()), 32);
  EXPECT_EQ(wire.find(raw), std::string::npos);
  EXPECT_EQ(wire.find(secret.to_text()), std::string::npos);

  Pair pair;
  pair.near.send("a text to look for");
  EXPECT_EQ(std::string(pair.near.output()).find("look for"), std::string::npos);
}

TEST(ControlSession, RefusesASideWithAnotherSecretFromBothEnds) {
  // The connecting side notices first, because the other side proves itself first.
  ControlSession near(ControlRole::Connects, Secret::make());
  ControlSession far(ControlRole::Accepts, Secret::make());
  far.feed(bytes_of(take_output(near)));
  const std::string answer = take_output(far);
  EXPECT_HAS(message_of<InputError>([&] { near.feed(bytes_of(answer)); }),
             "does not know this job's secret");
  EXPECT_FALSE(near.established());

  // A hostile connecting side goes on all the same, with a false proof.
  const std::string forged(32 + 24, 'f');
  EXPECT_HAS(message_of<InputError>([&] { far.feed(bytes_of(forged)); }),
             "does not know this job's secret");
  EXPECT_FALSE(far.established());
  EXPECT_THROW(far.feed(bytes_of(forged)), InputError) << "a refused session goes on";
}

TEST(ControlSession, RefusesARecordedSession) {
  const Secret secret = Secret::make();
  ControlSession near(ControlRole::Connects, secret);
  ControlSession far(ControlRole::Accepts, secret);
  const std::string hello = take_output(near);
  far.feed(bytes_of(hello));
  const std::string answer = take_output(far);
  near.feed(bytes_of(answer));
  const std::string proof = take_output(near);
  far.feed(bytes_of(proof));
  ASSERT_TRUE(far.established());

  // The recorded bytes of the connecting side go to a new server, and those of the
  // accepting side to a new client.
  ControlSession new_far(ControlRole::Accepts, secret);
  new_far.feed(bytes_of(hello));
  EXPECT_THROW(new_far.feed(bytes_of(proof)), InputError);
  EXPECT_FALSE(new_far.established());
  ControlSession new_near(ControlRole::Connects, secret);
  EXPECT_THROW(new_near.feed(bytes_of(answer)), InputError);
}

TEST(ControlSession, RefusesItsOwnWordsThrownBack) {
  // Without the secret, a proof of the accepting side must not serve as one of the
  // connecting side.
  const Secret secret = Secret::make();
  ControlSession far(ControlRole::Accepts, secret);
  ControlSession near(ControlRole::Connects, secret);
  far.feed(bytes_of(take_output(near)));
  const std::string answer = take_output(far);  // magic 8, challenge 32, proof 32
  const std::string thrown_back = answer.substr(40) + std::string(24, '\0');
  EXPECT_THROW(far.feed(bytes_of(thrown_back)), InputError);
}

TEST(ControlSession, NoticesAnyChangedByte) {
  for (const size_t place : {0UL, 4UL, 5UL, 20UL}) {
    Pair pair;
    pair.near.send("twelve bytes");
    std::string frame = take_output(pair.near);
    ASSERT_EQ(frame.size(), 4 + 17 + 12U);
    frame[place] = static_cast<char>(frame[place] ^ 1);
    try {
      // A shorter length is noticed at once, a longer one when that many bytes have come.
      pair.far.feed(bytes_of(frame + std::string(300, 'x')));
      ADD_FAILURE() << "a change at " << place << " was taken";
    } catch (const InputError&) {
    }
    EXPECT_EQ(pair.far.take_message(), std::nullopt);
  }
}

TEST(ControlSession, NoticesMessagesThatAreDoubledLeftOutOrMoved) {
  const auto frames = [](Pair& pair) {
    pair.near.send("first");
    const std::string first = take_output(pair.near);
    pair.near.send("second");
    return std::pair(first, take_output(pair.near));
  };
  Pair doubled;
  const auto [one, two] = frames(doubled);
  doubled.far.feed(bytes_of(one));
  EXPECT_THROW(doubled.far.feed(bytes_of(one)), InputError);
  Pair moved;
  const auto [early, late] = frames(moved);
  EXPECT_THROW(moved.far.feed(bytes_of(late)), InputError);
}

TEST(ControlSession, RefusesALengthThatNoMessageHas) {
  for (const uint32_t length : {0U, 16U, 17U + (4U << 20) + 1U, 0xFFFFFFFFU}) {
    Pair pair;
    std::string frame(4, '\0');
    for (int i = 0; i < 4; ++i) frame[i] = static_cast<char>(length >> (8 * i) & 0xFF);
    EXPECT_HAS(message_of<InputError>([&] { pair.far.feed(bytes_of(frame)); }),
               "announced a message of " + std::to_string(length));
  }
}

TEST(ControlSession, TellsAGoodbyeFromALossAndTakesNothingAfterIt) {
  Pair pair;
  pair.near.send("last words");
  pair.near.say_goodbye();
  EXPECT_FALSE(pair.far.ended());
  pair.far.feed(bytes_of(take_output(pair.near)));
  EXPECT_TRUE(pair.far.ended());
  EXPECT_EQ(pair.far.take_message(), "last words");
  EXPECT_THROW(pair.far.feed(bytes_of("more")), InputError);
}

TEST(ControlSession, RefusesOtherProtocols) {
  ControlSession far(ControlRole::Accepts, Secret::make());
  const std::string http = "GET / HTTP/1.1\r\nHost: supervisor.example.com\r\n\r\n";
  EXPECT_HAS(message_of<InputError>([&] { far.feed(bytes_of(http)); }),
             "does not speak the protocol");
  EXPECT_TRUE(far.output().empty());
}

TEST(Secret, SurvivesTheWayThroughTextAndNothingElseDoes) {
  const Secret secret = Secret::make();
  const std::string text = secret.to_text();
  ASSERT_EQ(text.size(), 64U);
  EXPECT_EQ(Secret::from_text(text).to_text(), text);
  EXPECT_NE(Secret::make().to_text(), text);
  for (const std::string& wrong :
       {std::string(), text.substr(1), text + "0", "g" + text.substr(1), text + " "}) {
    const std::string message = message_of<InputError>([&] { Secret::from_text(wrong); });
    EXPECT_HAS(message, "64 hex digits");
    if (!wrong.empty()) {
      EXPECT_EQ(message.find(wrong), std::string::npos) << "it is shown";
    }
  }
}

TEST(Secret, IsTheFirstLineOfAnInputAndNoByteMore) {
  const Secret secret = Secret::make();
  const TestDirectory dir;
  const auto read = [&](const std::string& input) {
    write_file(dir / "input", input);
    const File file = File::open_read(dir / "input");
    const auto taken = Secret::read_line(file.fd());
    std::string rest(input.size(), '\0');
    rest.resize(static_cast<size_t>(::read(file.fd(), rest.data(), rest.size())));
    return std::pair(taken ? taken->to_text() : "", rest);
  };
  EXPECT_EQ(read(secret.to_line() + "more"), std::pair(secret.to_text(), "more"s));
  EXPECT_EQ(read(secret.to_text()), std::pair(secret.to_text(), ""s));
  EXPECT_EQ(read(""), std::pair(""s, ""s));
  EXPECT_THROW(read(secret.to_text() + "0\n"), InputError);
  EXPECT_THROW(read("abc\n"), InputError);
}

}  // namespace
}  // namespace longhaul::cluster
