#include "longhaul/cluster/health/peers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

constexpr const char* kUnreached = "unreached";
constexpr size_t kNamedPeers = 8;
/// The longest wait of one poll() for connections, in milliseconds.
constexpr int kLookMilliseconds = 50;

/// One try to reach a node.
struct Try {
  const PeerNode* peer;
  std::optional<Descriptor> socket;  ///< while it is under way
  std::string why;                   ///< why the node is not reached
};

Try begin_try(const PeerNode& peer) {
  Try one{&peer, {}, {}};
  try {
    one.socket = start_connect(resolve(peer.host, peer.port).at(0), one.why);
  } catch (const TemporaryError& unknown) {
    one.why = unknown.message();
  }
  return one;
}

/// Waits for at most kLookMilliseconds, and ends the tries that have then succeeded or
/// failed.
void settle(std::vector<Try>& tries) {
  std::vector<pollfd> waits;
  std::vector<Try*> of;
  for (Try& one : tries) {
    if (!one.socket) continue;
    waits.push_back({one.socket->get(), POLLOUT, 0});
    of.push_back(&one);
  }
  if (::poll(waits.data(), waits.size(), kLookMilliseconds) <= 0) return;
  for (size_t i = 0; i < waits.size(); ++i) {
    if (waits[i].revents == 0) continue;
    const int error = socket_error(waits[i].fd);
    if (error != 0 && error != ECONNREFUSED) of[i]->why = std::strerror(error);
    of[i]->socket.reset();
  }
}

using Pair = std::pair<std::string, std::string>;

/// Returns the pairs of nodes of which one says that it does not reach the other, and who
/// says so.
std::map<Pair, std::set<std::string>> lost_pairs(
    const std::vector<HealthReport>& reports) {
  std::map<Pair, std::set<std::string>> lost;
  for (const HealthReport& report : reports) {
    for (const HealthCheck& check : report.checks) {
      if (check.name != kPeersCheck || !check.has_failed()) continue;
      if (!check.values.contains(kUnreached)) continue;
      for (const Json& other : check.values[kUnreached]) {
        if (!other.is_string() || other == report.node) continue;
        const auto name = other.get<std::string>();
        lost[Pair(std::minmax(report.node, name))].insert(report.node);
      }
    }
  }
  return lost;
}

std::string told(const Pair& pair, const std::set<std::string>& by) {
  std::vector<std::string> ways;
  for (const std::string& from : by) {
    ways.push_back(
        fmt::format("{} to {}", from, from == pair.first ? pair.second : pair.first));
  }
  return fmt::format("{} and {} do not reach each other (tried from {})", pair.first,
                     pair.second, listed(ways, ways.size()));
}

/// Returns nodes such that each lost pair has one of them, each node with its lost pairs.
std::map<std::string, std::vector<Pair>> nodes_at_fault(
    std::set<Pair> lost, const std::set<std::string>& left_out, const std::string& here) {
  std::map<std::string, std::vector<Pair>> at_fault;
  while (!lost.empty()) {
    std::map<std::string, std::vector<Pair>> of;
    for (const Pair& pair : lost) {
      of[pair.first].push_back(pair);
      of[pair.second].push_back(pair);
    }
    const auto worst = std::ranges::max_element(of, {}, [&](const auto& one) {
      const std::string& node = one.first;
      return std::tuple(one.second.size(), left_out.contains(node), node != here, node);
    });
    for (const Pair& pair : worst->second) lost.erase(pair);
    at_fault.insert(*worst);
  }
  return at_fault;
}

}  // namespace

PeerDoor::PeerDoor(const std::string& host)
    : door_(listen_at(resolve(own_address_towards(host), 0).at(0))),
      address_(bound_address(door_.get())) {}

PeerNode PeerDoor::at(const std::string& node) const {
  return {node, address_.host(), address_.port()};
}

void PeerDoor::turn_away() const {
  for (size_t i = 0; i < kMostPeers; ++i) {
    const Descriptor come(::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!come.is_open()) return;
  }
}

HealthCheck check_peers(const std::vector<PeerNode>& peers, double seconds) {
  std::vector<Try> tries;
  for (const PeerNode& peer :
       std::span(peers).first(std::min(peers.size(), kMostPeers))) {
    tries.push_back(begin_try(peer));
  }
  const auto under_way = [](const Try& one) { return one.socket.has_value(); };
  const system::Stopwatch watch;
  while (std::ranges::any_of(tries, under_way) && watch.seconds() < seconds) {
    settle(tries);
  }
  Json unreached = Json::array();
  std::vector<std::string> words;
  for (Try& one : tries) {
    if (one.socket) one.why = fmt::format("no answer within {:.1f} s", seconds);
    if (one.why.empty()) continue;
    unreached.push_back(one.peer->node);
    words.push_back(
        fmt::format("{} at {} ({})", one.peer->node, one.peer->host, one.why));
  }
  HealthCheck check;
  check.text = fmt::format("reaches {}", counted(std::ssize(tries), "other node"));
  if (!words.empty()) {
    check = HealthCheck::failed(fmt::format("does not reach {}; look at the network",
                                            listed(words, kNamedPeers)));
  }
  check.values = {{kUnreached, std::move(unreached)}};
  return check;
}

std::vector<std::string> judge_peers(std::vector<HealthReport>& reports,
                                     const std::set<std::string>& left_out,
                                     const std::string& here) {
  const auto lost = lost_pairs(reports);
  std::set<Pair> pairs;
  std::set<std::string> nodes;
  for (const HealthReport& report : reports) nodes.insert(report.node);
  for (const auto& [pair, by] : lost) {
    pairs.insert(pair);
    nodes.insert({pair.first, pair.second});
  }
  for (HealthReport& report : reports) {
    for (HealthCheck& check : report.checks) {
      if (check.name == kPeersCheck) check.result = HealthResult::Ok;
    }
  }
  auto at_fault = nodes_at_fault(std::move(pairs), left_out, here);
  std::vector<std::string> shared;
  if (2 * at_fault.size() >= nodes.size() && !at_fault.empty()) {
    std::vector<std::string> words;
    for (const auto& [pair, by] : lost) words.push_back(told(pair, by));
    shared.push_back(fmt::format("{}: {}", kPeersCheck, listed(words, kNamedPeers)));
    at_fault.clear();
  }
  for (const auto& [node, its] : at_fault) {
    std::vector<std::string> words;
    for (const Pair& pair : its) words.push_back(told(pair, lost.at(pair)));
    auto report = std::ranges::find(reports, node, &HealthReport::node);
    if (report == reports.end()) {
      reports.push_back({.node = node, .time = 0.0, .checks = {}});
      report = std::prev(reports.end());
    }
    std::erase_if(report->checks,
                  [](const HealthCheck& check) { return check.name == kPeersCheck; });
    report->checks.push_back(HealthCheck::failed(listed(words, kNamedPeers)));
    report->checks.back().name = kPeersCheck;
  }
  return shared;
}

}  // namespace longhaul::cluster
