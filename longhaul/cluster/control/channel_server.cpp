#include "longhaul/cluster/control/channel_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "longhaul/base/refused.h"
#include "longhaul/cluster/control/control_session.h"
#include "longhaul/cluster/control/socket.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

/// Limits of one turn, so that a peer that sends much does not keep the others waiting.
constexpr int kReadsPerTurn = 16;
constexpr int kAcceptsPerTurn = 64;
constexpr int kEventsPerTurn = 256;
/// When max_pending connections have not proved that they know the secret, those that are
/// older than this are dropped.
constexpr double kMakesRoomSeconds = 1.0;
/// Seconds between two looks at the deadlines.
constexpr double kSweepSeconds = 0.1;
/// The listening socket's number among the peers.
constexpr uint64_t kListener = 0;

struct Peer {
  Descriptor socket;
  ControlSession session;
  std::string address;
  double since = 0.0;       ///< when it was accepted
  double last_bytes = 0.0;  ///< when bytes were last read
  bool proved = false;
  bool wants_to_write = false;
};

}  // namespace

struct ChannelServer::State {
  State(const Secret& secret_, const ChannelLimits& limits_)
      : secret(secret_), limits(limits_), poll_set(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!poll_set.is_open()) throw longhaul::refused(kControlArea, "epoll set", errno);
  }

  Secret secret;
  ChannelLimits limits;
  Descriptor poll_set;
  Descriptor listener;
  std::string host;
  int port = 0;
  system::Stopwatch clock;
  std::map<uint64_t, Peer> peers;  ///< by number, the oldest first
  uint64_t next_peer = 1;
  size_t pending = 0;
  bool accepting = false;
  double last_sweep = 0.0;
  uint64_t refused = 0;
  std::string last_refusal;
  std::vector<ChannelEvent> events;

  void control(int operation, int fd, uint64_t number, uint32_t wanted) {
    epoll_event event{};
    event.events = wanted;
    event.data.u64 = number;
    const int wrong = ::epoll_ctl(poll_set.get(), operation, fd, &event);
    LH_CHECK(wrong == 0, kControlArea, "epoll_ctl: {}", std::strerror(errno));
  }

  /// Starts or stops to watch the listening socket, which must not wake the loop while
  /// nobody can be accepted.
  void set_accepting(bool wanted) {
    if (wanted == accepting) return;
    accepting = wanted;
    control(EPOLL_CTL_MOD, listener.get(), kListener, wanted ? uint32_t{EPOLLIN} : 0U);
  }

  void drop(std::map<uint64_t, Peer>::iterator place, const std::string& reason,
            bool goodbye = false) {
    Peer& peer = place->second;
    if (peer.proved) {
      events.push_back({.kind = ChannelEvent::Kind::Lost,
                        .peer = place->first,
                        .address = peer.address,
                        .goodbye = goodbye,
                        .reason = reason});
    } else {
      --pending;
      ++refused;
      last_refusal = fmt::format("{}: {}", peer.address, reason);
    }
    peers.erase(place);  // closing the socket takes it out of the poll set
  }

  void accept_some() {
    for (int i = 0; i < kAcceptsPerTurn && pending < limits.max_pending; ++i) {
      sockaddr_storage from{};
      socklen_t size = sizeof(from);
      Descriptor socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from),
                                  &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.is_open()) {
        // No descriptor is left. The next sweep accepts again, so that the loop does not
        // spin.
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          last_refusal = std::string("cannot accept: ") + std::strerror(errno);
          set_accepting(false);
        }
        return;
      }
      tune_connection(socket.get());
      const uint64_t number = next_peer++;
      control(EPOLL_CTL_ADD, socket.get(), number, EPOLLIN);
      const double now = clock.seconds();
      const SocketAddress address(reinterpret_cast<const sockaddr*>(&from), size);
      peers.emplace(number,
                    Peer{std::move(socket), ControlSession(ControlRole::Accepts, secret),
                         address.to_text(), now, now});
      ++pending;
    }
    if (pending >= limits.max_pending) set_accepting(false);
  }

  /// Drops connections whose time for a proof is over, and makes room for those that
  /// wait.
  void sweep() {
    const double now = clock.seconds();
    if (now - last_sweep < kSweepSeconds) return;
    last_sweep = now;
    const bool full = pending >= limits.max_pending;
    const double patience = full ? std::min(kMakesRoomSeconds, limits.handshake_seconds)
                                 : limits.handshake_seconds;
    if (pending > 0) {
      for (auto place = peers.begin(); place != peers.end();) {
        const auto here = place++;
        if (here->second.proved || now - here->second.since < patience) continue;
        drop(here, fmt::format(
                       "it did not prove that it knows the job's secret within {:.1f} s",
                       patience));
      }
    }
    if (pending < limits.max_pending) set_accepting(true);
  }

  /// Sends what the socket takes now. Returns false, with `why`, when the peer is lost.
  bool flush(uint64_t number, Peer& peer, std::string& why) {
    while (!peer.session.output().empty()) {
      size_t count = 0;
      const IoResult result =
          write_some(peer.socket.get(), peer.session.output(), count, why);
      if (result == IoResult::Closed) return false;
      if (result == IoResult::Later) break;
      peer.session.written(count);
    }
    const bool wants = !peer.session.output().empty();
    if (wants != peer.wants_to_write) {
      peer.wants_to_write = wants;
      control(EPOLL_CTL_MOD, peer.socket.get(), number,
              wants ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
    if (peer.session.output().size() > limits.max_unsent_bytes) {
      why = fmt::format("{} bytes that were sent to it are still unread",
                        peer.session.output().size());
      return false;
    }
    return true;
  }

  /// Reads the bytes that are there. Returns false, with `why`, when the peer is lost.
  bool read(Peer& peer, std::string& why) {
    std::array<std::byte, kControlReadBytes> bytes;
    for (int i = 0; i < kReadsPerTurn; ++i) {
      size_t count = 0;
      const IoResult result = read_some(peer.socket.get(), bytes, count, why);
      if (result == IoResult::Later) return true;
      if (result == IoResult::Closed) return false;
      peer.last_bytes = clock.seconds();
      peer.session.feed(std::span(bytes).first(count));
      if (count < bytes.size()) return true;
    }
    return true;
  }

  void report(uint64_t number, Peer& peer) {
    if (!peer.proved && peer.session.established()) {
      peer.proved = true;
      --pending;
      events.push_back({.kind = ChannelEvent::Kind::Connected,
                        .peer = number,
                        .address = peer.address});
    }
    while (auto text = peer.session.take_message()) {
      events.push_back(
          {.peer = number,
           .message = parse_json(*text, "a control message from " + peer.address)});
    }
  }

  void serve(uint64_t number) {
    const auto place = peers.find(number);
    if (place == peers.end()) return;
    Peer& peer = place->second;
    std::string why;
    bool good = false;
    bool goodbye = false;
    try {
      good = read(peer, why);
      // Messages that came before the end still count.
      report(number, peer);
      goodbye = peer.session.ended();
      if (goodbye) why = "it has ended the connection";
      good = good && !goodbye && flush(number, peer, why);
      if (good && peer.proved && peers.size() - pending > limits.max_peers) {
        good = false;
        why = fmt::format("there are {} peers already", limits.max_peers);
      }
    } catch (const InputError& error) {
      good = false;
      why = error.what();
    }
    if (!good) drop(place, why, goodbye);
  }

  void serve_ready(double timeout_seconds) {
    std::array<epoll_event, kEventsPerTurn> ready;
    const double milliseconds = std::ceil(1000.0 * std::max(0.0, timeout_seconds));
    const int count = ::epoll_wait(poll_set.get(), ready.data(), kEventsPerTurn,
                                   static_cast<int>(std::min(milliseconds, 1e9)));
    for (int i = 0; i < count; ++i) {
      if (ready[i].data.u64 == kListener) {
        accept_some();
      } else {
        serve(ready[i].data.u64);
      }
    }
  }
};

ChannelServer::ChannelServer(const Secret& secret, const std::string& host, int port,
                             const ChannelLimits& limits)
    : state_(std::make_unique<State>(secret, limits)) {
  state_->listener = listen_at(resolve(host, port).front());
  const SocketAddress bound = bound_address(state_->listener.get());
  state_->host = bound.host();
  state_->port = bound.port();
  state_->control(EPOLL_CTL_ADD, state_->listener.get(), kListener, EPOLLIN);
  state_->accepting = true;
}

ChannelServer::~ChannelServer() = default;

const std::string& ChannelServer::host() const { return state_->host; }
int ChannelServer::port() const { return state_->port; }

std::vector<ChannelEvent> ChannelServer::poll(double timeout_seconds) {
  State& state = *state_;
  const double end = state.clock.seconds() + timeout_seconds;
  state.sweep();
  // The wait is cut into pieces only while deadlines have to be watched.
  state.serve_ready(0.0);
  while (state.events.empty()) {
    const double left = end - state.clock.seconds();
    if (left <= 0.0) break;
    const bool watches_time = state.pending > 0 || !state.accepting;
    state.serve_ready(watches_time ? std::min(left, kSweepSeconds) : left);
    state.sweep();
  }
  return std::exchange(state.events, {});
}

bool ChannelServer::send(uint64_t peer, const Json& message) {
  State& state = *state_;
  const auto place = state.peers.find(peer);
  if (place == state.peers.end() || !place->second.proved) return false;
  place->second.session.send(json_text(message));
  std::string why;
  if (state.flush(peer, place->second, why)) return true;
  state.drop(place, why);
  return false;
}

void ChannelServer::send_all(const Json& message) {
  for (const uint64_t peer : peers()) send(peer, message);
}

void ChannelServer::close(uint64_t peer) {
  State& state = *state_;
  const auto place = state.peers.find(peer);
  if (place == state.peers.end() || !place->second.proved) return;
  place->second.session.say_goodbye();
  std::string why;
  state.flush(peer, place->second, why);
  state.peers.erase(place);
}

double ChannelServer::silent_seconds(uint64_t peer) const {
  const auto place = state_->peers.find(peer);
  if (place == state_->peers.end()) return std::numeric_limits<double>::infinity();
  return state_->clock.seconds() - place->second.last_bytes;
}

void ChannelServer::forgive_silence() {
  for (auto& [number, peer] : state_->peers) {
    peer.last_bytes = state_->clock.seconds();
    if (!peer.proved) peer.since = peer.last_bytes;
  }
}

std::vector<uint64_t> ChannelServer::peers() const {
  std::vector<uint64_t> numbers;
  for (const auto& [number, peer] : state_->peers) {
    if (peer.proved) numbers.push_back(number);
  }
  return numbers;
}

uint64_t ChannelServer::refused() const { return state_->refused; }
const std::string& ChannelServer::last_refusal() const { return state_->last_refusal; }

}  // namespace longhaul::cluster
