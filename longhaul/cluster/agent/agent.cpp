#include "longhaul/cluster/agent/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/agent/agent_messages.h"
#include "longhaul/cluster/agent/lease_look.h"
#include "longhaul/cluster/control/channel.h"
#include "longhaul/cluster/fleet/cloud_instance.h"
#include "longhaul/cluster/health/health.h"
#include "longhaul/cluster/health/peers.h"
#include "longhaul/cluster/slurm/stand_in.h"
#include "longhaul/cluster/watch/node_watch.h"
#include "longhaul/cluster/watch/pause_watch.h"
#include "longhaul/run/files.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {
namespace {

constexpr double kWaitSeconds = 0.05;
constexpr double kOrphanWaitSeconds = 0.5;
constexpr double kReconnectSeconds = 2.0;
constexpr double kLeaseLookSeconds = 1.0;
constexpr double kUnansweredLookSeconds = 10.0;
/// Storage that gives no answer within this time counts as silent. The time is shorter
/// than kAgentPauseSeconds, so that a look at the storage does not count as a pause.
constexpr double kStorageSeconds = 3.0;
/// Limit of a look at the paths that the run needs; shorter than kAgentPauseSeconds.
constexpr double kOwnLookSeconds = 4.0;
/// After a pause of this length the agent counts the supervisor's silence anew.
constexpr double kAgentPauseSeconds = 5.0;

class Agent {
 public:
  Agent(const AgentOptions& options, const Secret& secret)
      : options_(options),
        secret_(secret),
        instance_(speaker()),
        directories_(options.directories),
        watch_(options.node, options.directories.records()) {
    connect(kAgentSeconds);
  }

  int run() {
    while (!ended_) {
      const bool news = watch_.wait(channel_ ? kWaitSeconds : kOrphanWaitSeconds);
      if (door_) door_->turn_away();
      if (channel_) serve(news);
      if (!ended_) look_at_supervisor();
    }
    return exit_code_;
  }

 private:
  void connect(double seconds) {
    channel_.emplace(Channel::connect(options_.host, options_.port, secret_, seconds));
    Json hello = {{kHelloField, options_.node}};
    if (const auto& door = open_door()) hello[kDoorField] = door->at(options_.node);
    channel_->send(hello);
    heard_ = system::Stopwatch();
    reported_ = -1.0;
  }

  /// Opens the port at which other nodes test whether they reach this one. If that fails,
  /// no node tests its connection to this one.
  const std::optional<PeerDoor>& open_door() {
    try {
      if (!door_) door_.emplace(options_.host);
    } catch (const Error& problem) {
      say(problem.what());
    }
    return door_;
  }

  void serve(bool news) {
    try {
      while (!ended_) {
        const auto order = channel_->receive(0.0);
        if (!order) break;
        heard_ = system::Stopwatch();
        obey(*order);
      }
      if (!ended_ && (news || due())) report();
      if (ended_) channel_->close();
    } catch (const TemporaryError& lost) {
      say(lost.what());
      channel_.reset();
      heard_ = system::Stopwatch();
      // This supervisor cannot be replaced, so there is nothing to wait for.
      if (words_.empty()) end(kExitTemporary);
    }
  }

  void obey(const Json& message) {
    const std::string order = message.value(kOrderField, "");
    if (order == EndOrder::kName) {
      directories_.clean_up();
      ended_ = true;
    } else if (order == ForgetOrder::kName) {
      const auto forget = message.get<ForgetOrder>();
      if (forget.records) {
        watch_.forget();
        directories_.remove_segments();
      }
      start_ = forget.start;
      reported_ = -1.0;
    } else if (order == SignalOrder::kName) {
      const auto signal = message.get<SignalOrder>();
      watch_.signal(signal.number, signal.ranks, signal.cause);
    } else if (order == BeatOrder::kName) {
      const auto beat = message.get<BeatOrder>();
      served_ = beat.lease;
      report_seconds_ = std::clamp(beat.every, kLeastReportSeconds, kMostReportSeconds);
    } else if (order == SucceedOrder::kName) {
      const auto succeed = message.get<SucceedOrder>();
      turn_ = succeed.turn;
      words_ = succeed.words;
    } else if (order == HealthOrder::kName) {
      HealthReport health = check_node(message.get<HealthOrder>().options);
      health.node = options_.node;
      channel_->send({{kHealthField, health.to_json()}});
    } else if (order == PathsOrder::kName) {
      const std::vector<PathView> views =
          view_paths(message.get<PathsOrder>().needed, kOwnLookSeconds);
      channel_->send({{kPathsField, views}});
    } else if (order == StacksOrder::kName) {
      Json stacks = Json::object();
      for (const auto& [rank, text] : watch_.stacks(message.get<StacksOrder>().ranks)) {
        stacks[std::to_string(rank)] = text;
      }
      channel_->send({{kStacksField, std::move(stacks)}});
    }
  }

  bool due() const {
    return reported_ < 0.0 || clock_.seconds() - reported_ >= report_seconds_;
  }

  /// Reads the workers' records and sends a report. That takes time from the workers, so
  /// it is done only when a report is due or there is news.
  void report() {
    instance_.look();
    const NodeReport now = watch_.report();
    reported_ = clock_.seconds();
    Json message = report_message(now.to_json(), start_, watch_.take_notes());
    if (stood_ > 0.0) message[kStoodField] = stood_;
    channel_->send(message);
  }

  /// Acts if the supervisor has not been heard for too long.
  void look_at_supervisor() {
    const double pause = pauses_.turn();
    stood_ += pause;
    if (pause > 0.0) heard_ = lease_since_ = system::Stopwatch();
    if (channel_ && heard_.seconds() < options_.succession.silence) return;
    // Each look at storage that does not answer leaves a process behind for a while.
    const double between =
        lease_ == LeaseState::Unknown ? kUnansweredLookSeconds : kLeaseLookSeconds;
    if (words_.empty() || looked_.seconds() < between) return;
    looked_ = system::Stopwatch();
    const SuccessionView view = look_at_lease();
    switch (decide_succession(options_.succession, view)) {
      case SuccessionAct::Wait:
        return;
      case SuccessionAct::Leave:
        return end(0);
      case SuccessionAct::Reconnect:
        return reconnect();
      case SuccessionAct::EndFrozen:
        say(fmt::format(
            "the supervisor on this node (process {}) does not answer and does not renew "
            "its lease: it is killed, so that its script starts another supervisor",
            holder_process_));
        ::kill(static_cast<pid_t>(holder_process_), SIGKILL);
        return;
      case SuccessionAct::StandIn:
        return stand_in(view.holder);
      case SuccessionAct::RequeueDeserted:
        requeue_deserted(stand_in_options(), slurm_);
        return end(0);
      case SuccessionAct::Requeue:
        if (view.lease == LeaseState::Unknown) {
          say(
              fmt::format("no supervisor answers, and {} could not be read for {:.0f} s: "
                          "the job is requeued",
                          lock_.string(), view.lease_since));
          requeue_without_storage(stand_in_options(), slurm_);
        } else {
          say("no supervisor answers, and none can be started on this node: the job is "
              "requeued");
          requeue_orphan(stand_in_options(), slurm_);
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
    const auto look =
        cluster::look_at_lease(lock_, options_.lease_seconds, kStorageSeconds);
    view.lease = !look                            ? LeaseState::Unknown
                 : !look->there || look->released ? LeaseState::Released
                 : look->alive                    ? LeaseState::Held
                                                  : LeaseState::Expired;
    if (look && look->there) judge_holder(*look, view);
    if (std::exchange(lease_, view.lease) != view.lease)
      lease_since_ = system::Stopwatch();
    view.lease_since = lease_since_.seconds();
    return view;
  }

  /// Judges a holder on this machine by its lease alone: OwnerLock takes it for alive
  /// while its process is there, even when that process is frozen.
  void judge_holder(const LeaseLook& look, SuccessionView& view) {
    view.holder = look.number;
    holder_process_ = look.process;
    if (std::exchange(renewed_, look.renewed) != look.renewed)
      renewal_ = system::Stopwatch();
    if (!look.alive || look.host != host_name()) return;
    view.holder_here = true;
    if (renewal_.seconds() >= options_.lease_seconds) view.lease = LeaseState::Expired;
  }

  void reconnect() {
    try {
      connect(kReconnectSeconds);
    } catch (const Error& problem) {
      channel_.reset();  // the loop connects again in a second
    }
  }

  void stand_in(int lease) {
    say(
        fmt::format("the supervisor does not answer and its lease has run out: this node "
                    "takes over from supervisor number {}",
                    lease));
    channel_.reset();
    StandInOptions stand_in = stand_in_options();
    stand_in.words.insert(stand_in.words.end(), {"--replaces", std::to_string(lease)});
    const int status = stand_in_for_script(stand_in, slurm_);
    // Another agent has taken the lease first. It may be lost as well, so this agent
    // watches on.
    if (status != kExitSuperseded) return end(status);
    heard_ = lease_since_ = system::Stopwatch();
  }

  StandInOptions stand_in_options() const {
    StandInOptions options;
    options.job = options_.job;
    options.words = words_;
    options.raised = [this] { return signals_.raised(); };
    options.log = fmt::format("{}/slurm-{}.log", options_.run_dir.string(), options_.job);
    return options;
  }

  void end(int exit_code) {
    exit_code_ = exit_code;
    ended_ = true;
  }

  void say(const std::string& line) const {
    fmt::print(stderr, "{}: {}\n", speaker(), system::printable(line));
    std::fflush(stderr);
  }

  std::string speaker() const {
    return fmt::format("longhaul agent on {}", options_.node);
  }

  const AgentOptions& options_;
  const Secret& secret_;
  InstanceLine instance_;
  const fs::path lock_ = options_.run_dir / run::kSupervisorLockFile;
  const SlurmClient slurm_;
  const HeldDirectories directories_;
  NodeWatch watch_;
  std::optional<PeerDoor> door_;
  std::optional<Channel> channel_;  ///< absent while the supervisor is lost
  system::SignalWatch signals_;
  system::Stopwatch clock_;
  double reported_ = -1.0;
  double report_seconds_ = kLeastReportSeconds;
  int64_t start_ = 0;
  // The members below belong to the succession (succession.h).
  std::vector<std::string> words_;  ///< command line of a stand-in; empty: none
  int turn_ = -1;
  int served_ = 0;
  PauseWatch pauses_{kAgentPauseSeconds};
  double stood_ = 0.0;        ///< seconds of all pauses of this process
  system::Stopwatch heard_;   ///< since the last message of the supervisor, or its loss
  system::Stopwatch looked_;  ///< since the last look at the lease
  LeaseState lease_ = LeaseState::Held;
  system::Stopwatch lease_since_;
  int64_t renewed_ = 0;
  system::Stopwatch renewal_;  ///< since the last renewal of the lease that was seen
  int64_t holder_process_ = 0;
  bool ended_ = false;
  int exit_code_ = 0;
};

}  // namespace

int run_agent(const AgentOptions& options, const Secret& secret) {
  return Agent(options, secret).run();
}

}  // namespace longhaul::cluster
