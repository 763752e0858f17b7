#include "longhaul/cluster/control/control_session.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "longhaul/base/error.h"

namespace longhaul::cluster {
namespace {

constexpr std::string_view kMagic = "LHCTRL01";
constexpr size_t kChallenge = 32;
constexpr size_t kProof = 32;
constexpr size_t kKey = crypto_secretstream_xchacha20poly1305_KEYBYTES;
constexpr size_t kHeader = crypto_secretstream_xchacha20poly1305_HEADERBYTES;
constexpr size_t kOverhead = crypto_secretstream_xchacha20poly1305_ABYTES;
constexpr size_t kLength = 4;
constexpr unsigned char kMessageTag = crypto_secretstream_xchacha20poly1305_TAG_MESSAGE;
constexpr unsigned char kGoodbyeTag = crypto_secretstream_xchacha20poly1305_TAG_FINAL;
/// Memory above this size is not kept for the next messages.
constexpr size_t kCompactBytes = size_t{1} << 16;

static_assert(kKey == kProof);
using Key = std::array<unsigned char, kKey>;

const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

[[noreturn]] void refuse(const std::string& why) {
  throw InputError("control", "the other side of a control connection " + why);
}

}  // namespace

struct ControlSession::State {
  State(ControlRole role_, const Secret& secret_) : role(role_), secret(secret_) {}
  ~State() {
    ::sodium_memzero(&sending, sizeof(sending));
    ::sodium_memzero(&receiving, sizeof(receiving));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  enum class Stage { Hello, Proof, Header, Open, Ended, Broken };

  ControlRole role;
  Secret secret;
  Stage stage = Stage::Hello;
  std::array<unsigned char, kChallenge> mine{};
  std::array<unsigned char, kChallenge> other{};
  crypto_secretstream_xchacha20poly1305_state sending{};
  crypto_secretstream_xchacha20poly1305_state receiving{};
  std::string input;
  std::string output;
  size_t output_begin = 0;
  bool said_goodbye = false;
  std::deque<std::string> messages;

  bool connects() const { return role == ControlRole::Connects; }

  /// Returns the hash, keyed with the secret, of both challenges (the connecting side's
  /// first) and of the words "WHAT of the connecting side" or "WHAT of the accepting
  /// side".
  Key derive(const std::string& what, bool of_connecting_side) const {
    const auto& first = connects() ? mine : other;
    const auto& second = connects() ? other : mine;
    const std::string purpose = what + (of_connecting_side ? " of the connecting side"
                                                           : " of the accepting side");
    crypto_generichash_state hash;
    Key key{};
    ::crypto_generichash_init(
        &hash, reinterpret_cast<const unsigned char*>(secret.bytes().data()),
        secret.bytes().size(), key.size());
    ::crypto_generichash_update(&hash, first.data(), first.size());
    ::crypto_generichash_update(&hash, second.data(), second.size());
    ::crypto_generichash_update(&hash, raw(purpose), purpose.size());
    ::crypto_generichash_final(&hash, key.data(), key.size());
    return key;
  }

  void put(const auto& bytes) {
    output.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void put_hello() {
    output += kMagic;
    put(mine);
  }
  void put_header() {
    Key key = derive("key", connects());
    std::array<unsigned char, kHeader> header{};
    ::crypto_secretstream_xchacha20poly1305_init_push(&sending, header.data(),
                                                      key.data());
    ::sodium_memzero(key.data(), key.size());
    put(header);
  }

  void take_hello(std::string_view bytes) {
    if (!bytes.starts_with(kMagic)) {
      refuse(
          "does not speak the protocol LHCTRL01: it is another program, or another "
          "version of longhaul");
    }
    std::memcpy(other.data(), bytes.data() + kMagic.size(), other.size());
  }
  void take_proof(std::string_view bytes) {
    const Key expected = derive("proof", !connects());
    if (::sodium_memcmp(expected.data(), bytes.data(), expected.size()) != 0) {
      refuse("does not know this job's secret; it belongs to another job, or to no job");
    }
  }
  void take_header(std::string_view bytes) {
    Key key = derive("key", !connects());
    const int wrong = ::crypto_secretstream_xchacha20poly1305_init_pull(
        &receiving, raw(bytes), key.data());
    ::sodium_memzero(key.data(), key.size());
    if (wrong != 0) refuse("sent a wrong stream header");
  }

  /// Returns how many bytes of input the present stage needs.
  size_t needed() const {
    switch (stage) {
      case Stage::Hello:
        return kMagic.size() + kChallenge + (connects() ? kProof : 0);
      case Stage::Proof:
        return kProof + kHeader;
      case Stage::Header:
        return kHeader;
      case Stage::Open:
        return input.size() < kLength ? kLength : kLength + frame_bytes();
      default:
        return 1;
    }
  }
  size_t frame_bytes() const {
    size_t bytes = 0;
    for (size_t i = 0; i < kLength; ++i) {
      bytes |= size_t{static_cast<unsigned char>(input[i])} << (8 * i);
    }
    if (bytes < kOverhead || bytes > kOverhead + kMaxMessageBytes) {
      refuse(fmt::format("announced a message of {} bytes; {} to {} bytes are allowed",
                         bytes, kOverhead, kOverhead + kMaxMessageBytes));
    }
    return bytes;
  }

  void take_frame(std::string_view frame) {
    std::string text(frame.size() - kOverhead, '\0');
    unsigned char tag = 0;
    if (::crypto_secretstream_xchacha20poly1305_pull(
            &receiving, reinterpret_cast<unsigned char*>(text.data()), nullptr, &tag,
            raw(frame), frame.size(), nullptr, 0) != 0) {
      refuse(
          "sent a message that is not authentic: a message was changed, repeated or lost "
          "on the way");
    }
    if (tag == kGoodbyeTag) {
      stage = Stage::Ended;
    } else if (tag == kMessageTag) {
      messages.push_back(std::move(text));
    } else {
      refuse(fmt::format("sent a message of an unknown kind: {}", tag));
    }
  }

  /// Goes to the next stage, once `input` holds what the present one needs.
  void advance() {
    switch (stage) {
      case Stage::Hello:
        take_hello(input);
        if (connects()) {
          take_proof(std::string_view(input).substr(kMagic.size() + kChallenge));
          put(derive("proof", true));
          put_header();
          stage = Stage::Header;
        } else {
          put_hello();
          put(derive("proof", false));
          stage = Stage::Proof;
        }
        return;
      case Stage::Proof:
        take_proof(input);
        take_header(std::string_view(input).substr(kProof));
        put_header();
        stage = Stage::Open;
        return;
      case Stage::Header:
        take_header(input);
        stage = Stage::Open;
        return;
      case Stage::Open:
        take_frame(std::string_view(input).substr(kLength));
        return;
      default:
        refuse("sent more after it had ended the connection");
    }
  }
};

ControlSession::ControlSession(ControlRole role, const Secret& secret)
    : state_(std::make_unique<State>(role, secret)) {
  ::randombytes_buf(state_->mine.data(), state_->mine.size());
  if (state_->connects()) state_->put_hello();
}

ControlSession::~ControlSession() = default;
ControlSession::ControlSession(ControlSession&&) noexcept = default;
ControlSession& ControlSession::operator=(ControlSession&&) noexcept = default;

void ControlSession::feed(std::span<const std::byte> bytes) {
  State& state = *state_;
  if (state.stage == State::Stage::Broken) refuse("was refused before");
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    while (!rest.empty()) {
      const size_t part = std::min(rest.size(), state.needed() - state.input.size());
      state.input += rest.substr(0, part);
      rest.remove_prefix(part);
      if (state.input.size() < state.needed()) continue;
      state.advance();
      state.input.clear();
    }
  } catch (...) {
    state.stage = State::Stage::Broken;
    throw;
  }
  // The memory of a long message is not kept for the short messages after it.
  if (state.input.empty() && state.input.capacity() > kCompactBytes) {
    state.input.shrink_to_fit();
  }
}

bool ControlSession::established() const {
  return state_->stage == State::Stage::Open || state_->stage == State::Stage::Ended;
}

bool ControlSession::ended() const { return state_->stage == State::Stage::Ended; }

std::optional<std::string> ControlSession::take_message() {
  if (state_->messages.empty()) return std::nullopt;
  std::string message = std::move(state_->messages.front());
  state_->messages.pop_front();
  return message;
}

void ControlSession::send(std::string_view message) {
  State& state = *state_;
  LH_CHECK(established() && !state.said_goodbye, "control",
           "a message before the handshake or after the goodbye");
  LH_CHECK(message.size() <= kMaxMessageBytes, "control",
           "a message of {} bytes; at most {}", message.size(), kMaxMessageBytes);
  const size_t frame = message.size() + kOverhead;
  const size_t begin = state.output.size();
  state.output.resize(begin + kLength + frame);
  for (size_t i = 0; i < kLength; ++i) {
    state.output[begin + i] = static_cast<char>(frame >> (8 * i) & 0xFF);
  }
  ::crypto_secretstream_xchacha20poly1305_push(
      &state.sending,
      reinterpret_cast<unsigned char*>(state.output.data() + begin + kLength), nullptr,
      raw(message), message.size(), nullptr, 0, kMessageTag);
}

void ControlSession::say_goodbye() {
  State& state = *state_;
  if (!established() || state.said_goodbye) return;
  state.said_goodbye = true;
  std::array<unsigned char, kLength + kOverhead> frame{};
  frame[0] = kOverhead;
  ::crypto_secretstream_xchacha20poly1305_push(&state.sending, frame.data() + kLength,
                                               nullptr, nullptr, 0, nullptr, 0,
                                               kGoodbyeTag);
  state.put(frame);
}

std::string_view ControlSession::output() const {
  return std::string_view(state_->output).substr(state_->output_begin);
}

void ControlSession::written(size_t bytes) {
  State& state = *state_;
  LH_CHECK(bytes <= state.output.size() - state.output_begin, "control",
           "written({}) of {} bytes", bytes, state.output.size() - state.output_begin);
  state.output_begin += bytes;
  if (state.output_begin > kCompactBytes / 2 + state.output.size() / 2 ||
      state.output_begin == state.output.size()) {
    state.output.erase(0, state.output_begin);
    state.output_begin = 0;
    if (state.output.capacity() > 4 * kCompactBytes && state.output.empty()) {
      state.output.shrink_to_fit();
    }
  }
}

}  // namespace longhaul::cluster
