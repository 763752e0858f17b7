#include "longhaul/cluster/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/owner_lock.h"
#include "longhaul/base/signals.h"
#include "longhaul/base/stopwatch.h"
#include "longhaul/cluster/channel.h"
#include "longhaul/cluster/health.h"
#include "longhaul/cluster/node_watch.h"

namespace longhaul::cluster {
namespace {

constexpr double kWaitSeconds = 0.05;
constexpr double kReportSeconds = 0.5;
constexpr double kConnectSeconds = 60.0;
constexpr double kLeaseLookSeconds = 1.0;
/// No supervisor comes back after that: Slurm itself has ended the job.
constexpr double kDeputySeconds = 3600.0;

class Agent {
 public:
  Agent(const AgentOptions& options, const Secret& secret)
      : options_(options),
        watch_(options.node, options.directories.records()),
        channel_(Channel::connect(options.host, options.port, secret, kConnectSeconds)) {}

  int run() {
    channel_.send({{"hello", options_.node}});
    try {
      while (!ended_) {
        const bool news = watch_.wait(kWaitSeconds);
        while (!ended_) {
          const auto order = channel_.receive(0.0);
          if (!order) break;
          obey(*order);
        }
        if (news || due()) report();
        // Slurm ends the job: the workers save first.
        if (signals_.raised() != 0 && !alive_) break;
      }
      channel_.close();
      return 0;
    } catch (const TemporaryError& lost) {
      fmt::print(stderr, "longhaul agent on {}: {}\n", options_.node, lost.what());
      std::fflush(stderr);
    }
    return deputy_words_.empty() ? kExitTemporary : await_supervisor();
  }

 private:
  void obey(const Json& order) {
    const std::string what = order.value("order", "");
    if (what == "end") {
      ended_ = true;
    } else if (what == "forget") {
      if (order.value("records", true)) watch_.forget();
      start_ = order.value("start", int64_t{0});
      reported_ = -1.0;
    } else if (what == "signal") {
      watch_.signal(order.value("number", 0), order.value("ranks", std::vector<int>()));
    } else if (what == "deputy") {
      deputy_words_ = order.value("words", std::vector<std::string>());
    } else if (what == "health") {
      HealthReport health = check_node(health_options(order.at("options")));
      health.node = options_.node;
      channel_.send({{"health", health.to_json()}});
    } else if (what == "stacks") {
      Json stacks = Json::object();
      const auto ranks = order.value("ranks", std::vector<int>());
      for (const auto& [rank, text] : watch_.stacks(ranks)) {
        stacks[std::to_string(rank)] = text;
      }
      channel_.send({{"stacks", std::move(stacks)}});
    }
  }

  bool due() const {
    return reported_ < 0.0 || clock_.seconds() - reported_ >= kReportSeconds;
  }

  /// Reading the records takes time from the workers, so this is not called all the time.
  void report() {
    const NodeReport now = watch_.report();
    alive_ = std::ranges::any_of(now.ranks, [](const ObservedRank& rank) {
      return rank.process != ProcessState::Gone;
    });
    reported_ = clock_.seconds();
    channel_.send(
        {{"report", now.to_json()}, {"start", start_}, {"notes", watch_.take_notes()}});
  }

  /// The supervisor is gone. Its batch script may start another one, which takes the lock
  /// and sends agents of its own; if its machine is gone, nobody does.
  int await_supervisor() {
    OwnerLockOptions lock;
    lock.lease_seconds = options_.lease_seconds;
    const Stopwatch watch;
    const auto before = OwnerLock::look(options_.supervisor_lock, lock);
    while (watch.seconds() < kDeputySeconds && signals_.raised() != SIGTERM) {
      const auto state = OwnerLock::look(options_.supervisor_lock, lock);
      if (!state || state->holder.released) return 0;
      if (before && state->holder.token != before->holder.token) return 0;
      if (!state->alive) {
        return options_.stand_in(deputy_words_, [&] { return signals_.raised(); });
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(kLeaseLookSeconds));
    }
    return kExitTemporary;
  }

  const AgentOptions& options_;
  NodeWatch watch_;
  Channel channel_;
  SignalWatch signals_;
  Stopwatch clock_;
  double reported_ = -1.0;
  int64_t start_ = 0;
  bool alive_ = false;  ///< any worker of this node
  /// Not empty: this is the deputy, and these start a supervisor that stands in.
  std::vector<std::string> deputy_words_;
  bool ended_ = false;
};

}  // namespace

int run_agent(const AgentOptions& options, const Secret& secret) {
  make_directories(options.directories);
  return Agent(options, secret).run();
}

}  // namespace longhaul::cluster
