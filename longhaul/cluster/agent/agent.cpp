#include "longhaul/cluster/agent/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/agent/lease_look.h"
#include "longhaul/cluster/control/channel.h"
#include "longhaul/cluster/health/health.h"
#include "longhaul/cluster/watch/node_watch.h"
#include "longhaul/cluster/watch/pause_watch.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {
namespace {

constexpr double kWaitSeconds = 0.05;
constexpr double kOrphanWaitSeconds = 0.5;
constexpr double kConnectSeconds = 60.0;
constexpr double kReconnectSeconds = 2.0;
constexpr double kLeaseLookSeconds = 1.0;
constexpr double kUnansweredLookSeconds = 10.0;
/// Storage that does not answer a look within that time does not answer. Shorter than a
/// pause of this process.
constexpr double kStorageSeconds = 3.0;
/// An agent that was not at work for so long has heard nothing in that time.
constexpr double kAgentPauseSeconds = 5.0;

class Agent {
 public:
  Agent(const AgentOptions& options, const Secret& secret)
      : options_(options),
        secret_(secret),
        watch_(options.node, options.directories.records()) {
    connect(kConnectSeconds);
  }

  int run() {
    while (!ended_) {
      const bool news = watch_.wait(channel_ ? kWaitSeconds : kOrphanWaitSeconds);
      if (channel_) serve(news);
      if (!ended_) look_at_supervisor();
    }
    return exit_code_;
  }

 private:
  void connect(double seconds) {
    channel_.emplace(Channel::connect(options_.host, options_.port, secret_, seconds));
    channel_->send({{"hello", options_.node}});
    heard_ = Stopwatch();
    reported_ = -1.0;
  }

  void serve(bool news) {
    try {
      while (!ended_) {
        const auto order = channel_->receive(0.0);
        if (!order) break;
        heard_ = Stopwatch();
        obey(*order);
      }
      if (!ended_ && (news || due())) report();
      if (ended_) channel_->close();
    } catch (const TemporaryError& lost) {
      say(lost.what());
      channel_.reset();
      heard_ = Stopwatch();
      // Without a supervisor that could be replaced, nobody waits for one.
      if (words_.empty()) end(kExitTemporary);
    }
  }

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
    } else if (what == "beat") {
      served_ = order.value("lease", 0);
      report_seconds_ = std::clamp(order.value("every", kLeastReportSeconds),
                                   kLeastReportSeconds, kMostReportSeconds);
    } else if (what == "succeed") {
      turn_ = order.value("turn", -1);
      words_ = order.value("words", std::vector<std::string>());
    } else if (what == "health") {
      HealthReport health = check_node(health_options(order.at("options")));
      health.node = options_.node;
      channel_->send({{"health", health.to_json()}});
    } else if (what == "stacks") {
      Json stacks = Json::object();
      const auto ranks = order.value("ranks", std::vector<int>());
      for (const auto& [rank, text] : watch_.stacks(ranks)) {
        stacks[std::to_string(rank)] = text;
      }
      channel_->send({{"stacks", std::move(stacks)}});
    }
  }

  bool due() const {
    return reported_ < 0.0 || clock_.seconds() - reported_ >= report_seconds_;
  }

  /// Reading the records takes time from the workers, so this is not called all the time.
  void report() {
    const NodeReport now = watch_.report();
    reported_ = clock_.seconds();
    channel_->send(
        {{"report", now.to_json()}, {"start", start_}, {"notes", watch_.take_notes()}});
  }

  /// Is there anything to be done about a supervisor that is not heard?
  void look_at_supervisor() {
    if (pauses_.turn() > 0.0) heard_ = lease_since_ = Stopwatch();
    if (channel_ && heard_.seconds() < options_.succession.silence) return;
    // Each look that the storage does not answer leaves a process behind for a while.
    const double between =
        lease_ == LeaseState::Unknown ? kUnansweredLookSeconds : kLeaseLookSeconds;
    if (words_.empty() || looked_.seconds() < between) return;
    looked_ = Stopwatch();
    const SuccessionView view = look_at_lease();
    switch (decide_succession(options_.succession, view)) {
      case SuccessionAct::Wait:
        return;
      case SuccessionAct::Leave:
        return end(0);
      case SuccessionAct::Reconnect:
        return reconnect();
      case SuccessionAct::EndFrozen:
        say(
            fmt::format("the supervisor here (process {}) does not answer and does not "
                        "renew its lease: ended, so that its script starts another",
                        holder_process_));
        ::kill(static_cast<pid_t>(holder_process_), SIGKILL);
        return;
      case SuccessionAct::StandIn:
        return stand_in(view.holder);
      case SuccessionAct::RequeueDeserted:
        options_.requeue_deserted(words_);
        return end(0);
      case SuccessionAct::Requeue:
        if (view.lease == LeaseState::Unknown) {
          say(fmt::format(
              "no supervisor answers, and {} has not for {:.0f} s either: the "
              "job is requeued",
              options_.supervisor_lock.string(), view.lease_since));
          options_.requeue_without_storage();
        } else {
          say("no supervisor answers and none can be had here: the job is requeued");
          options_.requeue(words_);
        }
        return end(kExitTemporary);
    }
  }

  SuccessionView look_at_lease() {
    SuccessionView view;
    view.connected = channel_.has_value();
    view.unheard = heard_.seconds();
    view.served = served_;
    view.turn = turn_;
    view.asked_to_end = signals_.raised() == SIGTERM;
    const auto look = cluster::look_at_lease(options_.supervisor_lock,
                                             options_.lease_seconds, kStorageSeconds);
    view.lease = !look                            ? LeaseState::Unknown
                 : !look->there || look->released ? LeaseState::Released
                 : look->alive                    ? LeaseState::Held
                                                  : LeaseState::Expired;
    if (look && look->there) judge_holder(*look, view);
    if (std::exchange(lease_, view.lease) != view.lease) lease_since_ = Stopwatch();
    view.lease_since = lease_since_.seconds();
    return view;
  }

  /// On its own machine a holder counts as alive while its process is there, frozen or
  /// not: here it is the lease that says so.
  void judge_holder(const LeaseLook& look, SuccessionView& view) {
    view.holder = look.number;
    holder_process_ = look.process;
    if (std::exchange(renewed_, look.renewed) != look.renewed) renewal_ = Stopwatch();
    if (!look.alive || look.host != host_name()) return;
    view.holder_here = true;
    if (renewal_.seconds() >= options_.lease_seconds) view.lease = LeaseState::Expired;
  }

  void reconnect() {
    try {
      connect(kReconnectSeconds);
    } catch (const Error& problem) {
      channel_.reset();  // asked again in a second
    }
  }

  void stand_in(int lease) {
    say(
        fmt::format("the supervisor does not answer and its lease has run out: this node "
                    "takes over from number {}",
                    lease));
    channel_.reset();
    std::vector<std::string> words = words_;
    words.insert(words.end(), {"--replaces", std::to_string(lease)});
    const int status = options_.stand_in(words, [&] { return signals_.raised(); });
    // Another one was first: it may be lost as well.
    if (status != kExitSuperseded) return end(status);
    heard_ = lease_since_ = Stopwatch();
  }

  void end(int exit_code) {
    exit_code_ = exit_code;
    ended_ = true;
  }

  void say(const std::string& line) const {
    fmt::print(stderr, "longhaul agent on {}: {}\n", options_.node, printable(line));
    std::fflush(stderr);
  }

  const AgentOptions& options_;
  const Secret& secret_;
  NodeWatch watch_;
  std::optional<Channel> channel_;  ///< absent: the supervisor is lost
  SignalWatch signals_;
  Stopwatch clock_;
  double reported_ = -1.0;
  double report_seconds_ = kLeastReportSeconds;
  int64_t start_ = 0;
  // Of succession.
  std::vector<std::string> words_;  ///< start a supervisor that stands in; may be empty
  int turn_ = -1;
  int served_ = 0;
  PauseWatch pauses_{kAgentPauseSeconds};
  Stopwatch heard_;   ///< since the supervisor said something, or was lost
  Stopwatch looked_;  ///< since the lease was looked at
  LeaseState lease_ = LeaseState::Held;
  Stopwatch lease_since_;
  int64_t renewed_ = 0;
  Stopwatch renewal_;  ///< since the lease was seen renewed
  int64_t holder_process_ = 0;
  bool ended_ = false;
  int exit_code_ = 0;
};

}  // namespace

int run_agent(const AgentOptions& options, const Secret& secret) {
  make_directories(options.directories);
  return Agent(options, secret).run();
}

}  // namespace longhaul::cluster
