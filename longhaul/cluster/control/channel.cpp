#include "longhaul/cluster/control/channel.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "longhaul/cluster/control/control_session.h"
#include "longhaul/cluster/control/socket.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

/// Pause between two tries to connect.
constexpr auto kRetry = std::chrono::milliseconds(100);
/// Limit of one try, so that a name whose first address is dead still works.
constexpr double kTrySeconds = 5.0;

/// A limit in time that begins to run when it is made.
class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds) {}
  double left() const { return std::max(0.0, seconds_ - watch_.seconds()); }
  bool over() const { return watch_.seconds() >= seconds_; }

 private:
  system::Stopwatch watch_;
  double seconds_;
};

/// Returns whether the descriptor is ready before the deadline.
bool wait_for(int fd, short events, const Deadline& deadline) {
  pollfd one{fd, events, 0};
  const double milliseconds = std::ceil(1000.0 * deadline.left());
  return ::poll(&one, 1, static_cast<int>(std::min(milliseconds, 1e9))) > 0;
}

}  // namespace

struct Channel::State {
  State(Descriptor socket_, const Secret& secret, std::string peer_)
      : socket(std::move(socket_)),
        session(ControlRole::Connects, secret),
        peer(std::move(peer_)) {}

  Descriptor socket;
  ControlSession session;
  std::string peer;
  std::string lost = "it was closed";

  [[noreturn]] void lose(const std::string& why) {
    socket.reset();
    lost = why;
    fail();
  }
  [[noreturn]] void fail() const {
    fail_temporary(kControlArea, "the control connection to {} is lost: {}", peer, lost);
  }

  /// Writes as much as the socket takes now.
  void write_now() {
    while (!session.output().empty()) {
      size_t count = 0;
      std::string why;
      const IoResult result = write_some(socket.get(), session.output(), count, why);
      if (result == IoResult::Later) return;
      if (result == IoResult::Closed) lose(why);
      session.written(count);
    }
  }

  void write_all(const Deadline& deadline) {
    for (write_now(); !session.output().empty(); write_now()) {
      if (wait_for(socket.get(), POLLOUT, deadline)) continue;
      if (deadline.over()) lose("the other side no longer reads from it");
    }
  }

  /// Reads the bytes that are there now.
  void read_now() {
    std::array<std::byte, kControlReadBytes> bytes;
    size_t count = 0;
    std::string why;
    const IoResult result = read_some(socket.get(), bytes, count, why);
    if (result == IoResult::Later) return;
    if (result == IoResult::Closed) lose(why);
    try {
      session.feed(std::span(bytes).first(count));
    } catch (const InputError& error) {
      socket.reset();
      lost = error.what();
      throw;
    }
  }
};

namespace {

/// Connects to one address; returns nothing, with `why`, if that fails or is late.
std::optional<Descriptor> connect_to(const SocketAddress& to, const Deadline& deadline,
                                     std::string& why) {
  auto socket = start_connect(to, why);
  if (!socket) return std::nullopt;
  if (!wait_for(socket->get(), POLLOUT, deadline)) {
    why = "no answer";
    return std::nullopt;
  }
  if (const int error = socket_error(socket->get()); error != 0) {
    why = std::strerror(error);
    return std::nullopt;
  }
  return socket;
}

}  // namespace

Channel::Channel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Channel::Channel(Channel&&) noexcept = default;
Channel& Channel::operator=(Channel&&) noexcept = default;
Channel::~Channel() = default;

Channel Channel::connect(const std::string& host, int port, const Secret& secret,
                         double deadline_seconds) {
  const Deadline deadline(deadline_seconds);
  std::string why = "there was no time to try";
  const auto attempt = [&](const SocketAddress& to) -> std::unique_ptr<State> {
    const Deadline one(std::min(deadline.left(), kTrySeconds));
    auto socket = connect_to(to, one, why);
    if (!socket) return nullptr;
    auto state = std::make_unique<State>(std::move(*socket), secret, to.to_text());
    try {
      while (!state->session.established()) {
        state->write_all(one);
        if (wait_for(state->socket.get(), POLLIN, one)) state->read_now();
        if (one.over()) state->lose("the handshake took too long");
      }
    } catch (const TemporaryError& error) {
      why = error.what();
      return nullptr;
    }
    return state;
  };
  while (true) {
    try {
      for (const SocketAddress& to : resolve(host, port)) {
        if (deadline.over()) break;
        if (auto state = attempt(to)) return Channel(std::move(state));
      }
    } catch (const TemporaryError& error) {
      why = error.what();
    }
    if (deadline.left() < std::chrono::duration<double>(kRetry).count()) break;
    std::this_thread::sleep_for(kRetry);
  }
  fail_temporary(kControlArea, "no control connection to {} port {} within {:.1f} s: {}",
                 host, port, deadline_seconds, why);
}

void Channel::send(const Json& message, double timeout_seconds) {
  if (!is_open()) state_->fail();
  state_->session.send(json_text(message));
  state_->write_all(Deadline(timeout_seconds));
}

std::optional<Json> Channel::receive(double timeout_seconds) {
  const Deadline deadline(timeout_seconds);
  while (true) {
    if (auto text = state_->session.take_message()) {
      return parse_json(*text, "a control message from " + state_->peer);
    }
    if (!is_open()) state_->fail();
    if (state_->session.ended()) state_->lose("the other side has ended the connection");
    if (wait_for(fd(), POLLIN, deadline)) {
      state_->read_now();
    } else if (deadline.over()) {
      return std::nullopt;
    }
  }
}

void Channel::close(double timeout_seconds) {
  if (!is_open()) return;
  try {
    state_->session.say_goodbye();
    const Deadline deadline(timeout_seconds);
    state_->write_all(deadline);
    // If this side closed the socket with unread messages, the kernel would send a reset,
    // which can overtake the goodbye. So this side waits until the other side has closed.
    ::shutdown(fd(), SHUT_WR);
    std::array<std::byte, kControlReadBytes> dropped;
    std::string why;
    for (size_t count = 0; wait_for(fd(), POLLIN, deadline);) {
      if (read_some(fd(), dropped, count, why) == IoResult::Closed) break;
    }
  } catch (const std::exception&) {
    // The other side will see a lost connection, which is true.
  }
  state_->socket.reset();
}

int Channel::fd() const { return state_->socket.get(); }

}  // namespace longhaul::cluster
