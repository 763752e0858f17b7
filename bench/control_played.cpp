#include "bench/control_played.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/file.h"
#include "longhaul/cluster/agent/agent.h"
#include "longhaul/cluster/agent/agent_messages.h"
#include "longhaul/cluster/control/channel.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::bench {

using namespace cluster;

namespace {

/// How many nodes one process plays.
constexpr int kPlayedTogether = 256;
/// Fast enough that the search for stragglers begins at once.
constexpr double kStepsPerSecond = 8.0;

fs::path mark(const fs::path& dir, const char* what, int64_t start) {
  return dir / fmt::format("{}_{}", what, start);
}

/// One agent and its ranks, as the supervisor sees them.
class PlayedNode {
 public:
  PlayedNode(fs::path dir, int node, const Size& size, Channel channel)
      : dir_(std::move(dir)), node_(node), size_(size), channel_(std::move(channel)) {
    channel_.send({{kHelloField, node_name(node)}});
    // Nodes report at different times, as machines do that know nothing of each other.
    next_report_ = kMostReportSeconds * node / size.nodes;
  }

  int fd() const { return channel_.fd(); }
  bool ended() const { return ended_; }

  void obey_all() {
    while (const auto order = channel_.receive(0.0)) obey(*order);
  }

  /// Lets ranks begin when their launcher says so, and one die when the bench says so.
  void look_at_marks() {
    if (state_ == State::None && fs::exists(mark(dir_, "go", start_))) {
      state_ = State::Run;
      began_ = clock_.seconds();
    }
    if (state_ == State::Run && node_ == 0 && fs::exists(mark(dir_, "kill", start_))) {
      state_ = State::FirstGone;
      report();
    }
  }

  void report_if_due() {
    if (clock_.seconds() < next_report_) return;
    next_report_ += every_;
    report();
  }

 private:
  enum class State { None, Run, FirstGone, Gone, Saved };

  void obey(const Json& order) {
    const std::string what = order.value(kOrderField, "");
    if (what == EndOrder::kName) ended_ = true;
    if (what == BeatOrder::kName) every_ = order.get<BeatOrder>().every;
    if (what == ForgetOrder::kName) {
      start_ = order.get<ForgetOrder>().start;
      state_ = State::None;
      report();
    }
    if (what == HealthOrder::kName) {
      HealthReport health;
      health.node = node_name(node_);
      channel_.send({{kHealthField, health.to_json()}});
    }
    if (what == SignalOrder::kName &&
        (state_ == State::Run || state_ == State::FirstGone)) {
      state_ = order.get<SignalOrder>().number == SIGKILL ? State::Gone : State::Saved;
      report();
      if (node_ == 0) put_mark(dir_, state_ == State::Gone ? "dead" : "saved", start_);
    }
  }

  void report() {
    NodeReport now;
    now.node = node_name(node_);
    now.memory_total_bytes = int64_t{1} << 40;
    now.memory_used_bytes = int64_t{1} << 39;
    now.cpu_busy = 0.25;
    for (int i = 0; state_ != State::None && i < size_.per_node; ++i) {
      now.ranks.push_back(rank(i));
    }
    channel_.send(report_message(now.to_json(), start_, {}));
  }

  ObservedRank rank(int i) const {
    const double age = clock_.seconds() - began_;
    ObservedRank rank;
    rank.rank = node_ * size_.per_node + i;
    rank.world = size_.ranks();
    rank.pid = 100'000 + rank.rank;
    rank.node = node_name(node_);
    rank.place = place(rank.rank, size_);
    rank.steps_done = static_cast<int64_t>(kStepsPerSecond * age);
    rank.step = 1000 * start_ + rank.steps_done;
    rank.phase = "backward";
    rank.waits = i % 2 == 0;
    if (rank.waits) {
      rank.waits_group = "data";
      rank.waits_number = 8812 + rank.step;
      rank.waits_verb = "all_reduce";
      rank.waits_for = "all_reduce number 8812 (4096 bytes) on 'data' [bucket 3]";
      rank.waits_age = age - std::floor(age);
    }
    rank.phase_age = rank.progress_age = rank.step_age = age - std::floor(age);
    rank.wall_seconds = 1.0 / kStepsPerSecond;
    rank.busy_seconds = 0.5 / kStepsPerSecond;
    for (const char* phase : {"start", "forward", "backward", "gradients", "update"}) {
      rank.longest_phases[phase] = 0.123456789 + age / 1000.0;
    }
    for (const char* group : {"tp", "data", "shard"}) {
      rank.entered[group] = 8812 + rank.step;
    }
    if (state_ == State::Gone || (state_ == State::FirstGone && i == 0)) {
      rank.process = ProcessState::Gone;
    }
    if (state_ == State::Saved) {
      rank.process = ProcessState::Gone;
      rank.exit_code = kExitTemporary;
    }
    return rank;
  }

  fs::path dir_;
  int node_;
  Size size_;
  Channel channel_;
  system::Stopwatch clock_;
  State state_ = State::None;
  int64_t start_ = -1;
  double began_ = 0.0;
  double next_report_ = 0.0;
  double every_ = kLeastReportSeconds;
  bool ended_ = false;
};

}  // namespace

void put_mark(const fs::path& dir, const char* what, int64_t start) {
  File::create(mark(dir, what, start)).close();
}

int play(const fs::path& dir, const Size& size, int first, const std::string& host,
         int port) {
  constexpr int kPollMilliseconds = 20;
  const auto secret = Secret::read_line(STDIN_FILENO);
  if (!secret) throw ConfigError("bench", "a player without a secret");
  std::vector<std::unique_ptr<PlayedNode>> nodes;
  std::vector<pollfd> fds;
  for (int node = first; node < std::min(first + kPlayedTogether, size.nodes); ++node) {
    nodes.push_back(std::make_unique<PlayedNode>(
        dir, node, size, Channel::connect(host, port, *secret, 60.0)));
    fds.push_back({nodes.back()->fd(), POLLIN, 0});
  }
  while (std::ranges::none_of(nodes, &PlayedNode::ended)) {
    ::poll(fds.data(), fds.size(), kPollMilliseconds);
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (fds[i].revents != 0) nodes[i]->obey_all();
      nodes[i]->report_if_due();
    }
    for (const auto& node : nodes) node->look_at_marks();
  }
  return 0;
}

int launch_played(const fs::path& dir) {
  const char* restart = std::getenv("LONGHAUL_RESTART");
  // A supervisor counts its restarts from 0, a fleet its starts from 1.
  const int64_t start = 1 + (restart == nullptr ? 0 : std::atoi(restart));
  put_mark(dir, "go", start);
  while (true) {
    if (fs::exists(mark(dir, "dead", start))) return 1;
    if (fs::exists(mark(dir, "saved", start))) return kExitTemporary;
    sleep_seconds(0.01);
  }
}

std::vector<std::string> player_words(const std::string& program, const fs::path& dir,
                                      const Size& size, const std::string& node,
                                      const std::vector<std::string>& of_agent) {
  for (int first = 0; first < size.nodes; first += kPlayedTogether) {
    if (node != node_name(first)) continue;
    const auto after = [&](const char* name) {
      return *(std::ranges::find(of_agent, name) + 1);
    };
    return {program,
            "play",
            dir.string(),
            std::to_string(size.nodes),
            std::to_string(size.per_node),
            std::to_string(first),
            after("--host"),
            after("--port")};
  }
  return {"sleep", "1000"};
}

}  // namespace longhaul::bench
