#include "longhaul/cluster/agent/agent_fleet.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/cluster/agent/agent_messages.h"
#include "longhaul/cluster/control/channel_server.h"
#include "longhaul/cluster/control/socket.h"
#include "longhaul/cluster/health/peers.h"
#include "longhaul/cluster/watch/pause_watch.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

/// An agent that was not heard for this long is lost: agents report every two seconds or
/// more often.
constexpr double kSilentSeconds = 8.0;
constexpr double kStackSeconds = 10.0;
/// Longer than an agent takes to look at the paths that the run needs.
constexpr double kPathsSeconds = 6.0;
/// If an agent's step ends within this time after its connection broke, the agent died
/// alone and its node is there.
constexpr double kStepEndSeconds = 2.0;
constexpr int kAgentStarts = 5;
/// An agent that was started again connects within this time, or its node is lost.
constexpr double kReturnSeconds = 20.0;
/// Seconds between messages that tell the agents that their supervisor lives, and their
/// places in the order in which agents replace a lost supervisor.
constexpr double kBeatSeconds = 1.0;
/// A supervisor that did not listen for this long blames no agent for the silence.
constexpr double kFleetPauseSeconds = 2.0;
/// In the order in which agents replace a lost supervisor, all agents behind this place
/// are told this place. Otherwise the loss of one node would mean a message to thousands
/// of agents.
constexpr int kLastTurn = 8;
constexpr int kNotTold = -1;
constexpr double kReportsPerSecond = 2048.0;
/// How often the agents' steps are polled.
constexpr double kStepLookSeconds = 0.2;
/// For each agent the supervisor holds a connection and its step's output and error
/// output.
constexpr size_t kDescriptorsPerAgent = 3;
constexpr size_t kOtherDescriptors = 256;

struct AgentState {
  std::optional<JobStep> step;
  int starts = 0;
  uint64_t peer = 0;  ///< 0: not connected
  system::Stopwatch started;
  bool left = false;  ///< the agent said goodbye
  /// Runs from the loss of the connection until settle_broken() has decided.
  std::optional<system::Stopwatch> broken;
  std::string reason;  ///< why the connection broke
  bool lost = false;
  bool told_lost = false;
  bool busy = false;    ///< the agent runs a health check, and says nothing meanwhile
  int64_t forgot = -1;  ///< the start for which the node's records were removed
  int turn = kNotTold;
  std::shared_ptr<const NodeReport> report;
  std::map<int, std::string> stacks;
  std::optional<HealthReport> health;
  std::optional<PeerNode> door;  ///< where other nodes reach this one
  std::optional<std::vector<PathView>> paths;
  double stood = 0.0;  ///< seconds for which the agent has stood still
};

/// Raises the limit of open files if these agents need more. A shell's usual 1,024 are
/// enough for 256 agents. Throws ConfigError if the hard limit is too low.
void need_descriptors(size_t agents) {
  const rlim_t needed = kOtherDescriptors + kDescriptorsPerAgent * agents;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed) {
    fail_config("launch",
                "{} nodes need {} open files, but only {} are allowed; raise the hard "
                "limit (ulimit -Hn)",
                agents, needed, limit.rlim_max);
  }
  limit.rlim_cur = needed;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct AgentFleet::State {
  explicit State(AgentFleetOptions options_)
      : options(std::move(options_)), secret(Secret::make()), server(secret, address()) {}

  /// Returns this node's address on the way to another node of the job.
  std::string address() const {
    for (const std::string& node : options.nodes) {
      if (node != options.here) return own_address_towards(node);
    }
    return "127.0.0.1";
  }
  void start_agent(const std::string& node);
  void serve(double seconds);
  void take(const ChannelEvent& event);
  void take_message(uint64_t peer, const Json& message);
  void settle_broken();
  void replace_or_lose(const std::string& node, const std::string& reason);
  void look_at_silent();
  void tell_turns();
  void look_at_pauses();
  std::vector<PeerNode> peers_of(const std::string& node) const;
  std::string node_of(uint64_t peer) const;

  AgentFleetOptions options;
  Secret secret;
  ChannelServer server;
  std::map<std::string, AgentState> agents;
  std::unordered_map<uint64_t, std::string> nodes;  ///< by peer
  PauseWatch pauses{kFleetPauseSeconds};
  system::Stopwatch steps_looked;
  system::Stopwatch beats;
  double beaten = -kBeatSeconds;
  int64_t start = 0;
  std::vector<std::string> notes;
  uint64_t refused = 0;
  bool abandoned = false;  ///< the agents stay for another supervisor
  bool news = false;  ///< something has come that a supervisor wants to hear of at once
};

double report_seconds(size_t agents) {
  return std::clamp(static_cast<double>(agents) / kReportsPerSecond, kLeastReportSeconds,
                    kMostReportSeconds);
}

AgentFleet::AgentFleet(AgentFleetOptions options)
    : state_(std::make_unique<State>(std::move(options))) {
  if (state_->options.successors.empty()) {
    state_->options.successors = state_->options.nodes;
  }
  need_descriptors(state_->options.nodes.size());
  for (const std::string& node : state_->options.nodes) {
    state_->start_agent(node);
    // Thousands of starts take seconds, so the first agents are let in meanwhile.
    state_->serve(0.0);
  }
}

AgentFleet::~AgentFleet() {
  if (state_->abandoned) return;
  state_->server.send_all(order_message(EndOrder{}));
  const system::Stopwatch watch;
  const auto any_left = [&] {
    return std::ranges::any_of(state_->agents, [](auto& agent) {
      return agent.second.peer != 0 && agent.second.step && !agent.second.step->poll();
    });
  };
  while (any_left() && watch.seconds() < kStepEndSeconds) state_->server.poll(0.05);
  for (auto& [node, agent] : state_->agents) {
    if (agent.step) agent.step->signal(SIGTERM);
  }
}

void AgentFleet::State::start_agent(const std::string& node) {
  AgentState& agent = agents[node];
  ++agent.starts;
  agent.started = system::Stopwatch();
  agent.lost = agent.told_lost = false;
  agent.step.reset();
  std::vector<std::string> words = {options.program, "agent",
                                    "--node",        node,
                                    "--host",        server.host(),
                                    "--port",        std::to_string(server.port()),
                                    "--run-dir",     options.run_dir.string()};
  if (!options.job.empty()) words.insert(words.end(), {"--job", options.job});
  agent.step.emplace(options.start_agent(node, std::move(words), secret));
}

/// Returns the node of a peer; empty for a peer that is not, or no longer, an agent.
std::string AgentFleet::State::node_of(uint64_t peer) const {
  const auto node = nodes.find(peer);
  if (node == nodes.end() || agents.at(node->second).peer != peer) return {};
  return node->second;
}

void AgentFleet::State::serve(double seconds) {
  for (const ChannelEvent& event : server.poll(seconds)) take(event);
}

void AgentFleet::State::take_message(uint64_t peer, const Json& message) {
  if (message.contains(kHelloField)) {
    const auto node = message[kHelloField].get<std::string>();
    const auto agent = agents.find(node);
    if (agent == agents.end()) {
      notes.push_back(fmt::format("an agent of the unknown node '{}' was refused", node));
      server.close(peer);
      return;
    }
    agent->second.peer = peer;
    agent->second.door.reset();
    if (message.contains(kDoorField)) {
      agent->second.door = message[kDoorField].get<PeerNode>();
      agent->second.door->node = node;
    }
    nodes[peer] = node;
    agent->second.broken.reset();
    agent->second.lost = agent->second.told_lost = false;
    // If an agent is started again during a start of the workers, it keeps their records.
    server.send(peer, order_message(ForgetOrder{start, agent->second.forgot != start}));
    agent->second.forgot = start;
    agent->second.turn = kNotTold;
    if (options.agent_came && agent->second.step) options.agent_came(*agent->second.step);
    return;
  }
  const auto agent = agents.find(node_of(peer));
  if (agent == agents.end()) return;
  if (message.contains(kStacksField)) {
    for (const auto& [rank, text] : message[kStacksField].items()) {
      agent->second.stacks[std::stoi(rank)] = text.get<std::string>();
    }
  }
  if (message.contains(kHealthField)) {
    agent->second.health = HealthReport::from_json(message[kHealthField]);
  }
  if (message.contains(kPathsField)) {
    agent->second.paths = message[kPathsField].get<std::vector<PathView>>();
  }
  if (message.contains(kReportField))
    agent->second.stood = message.value(kStoodField, 0.0);
  if (message.contains(kReportField) &&
      message.value(kStartField, int64_t{-1}) == start) {
    agent->second.report =
        std::make_shared<const NodeReport>(NodeReport::from_json(message[kReportField]));
    news = news || std::ranges::any_of(agent->second.report->ranks, [](const auto& rank) {
             return rank.failed() || rank.process == ProcessState::Gone;
           });
    for (const Json& note : message.value(kNotesField, Json::array())) {
      notes.push_back(agent->first + ": " + note.get<std::string>());
    }
  }
}

void AgentFleet::State::take(const ChannelEvent& event) {
  if (event.kind == ChannelEvent::Kind::Message) {
    try {
      take_message(event.peer, event.message);
    } catch (const std::exception& problem) {
      notes.push_back(fmt::format("a message of {} cannot be read: {}",
                                  node_of(event.peer), to_error(problem).what()));
    }
  }
  if (event.kind != ChannelEvent::Kind::Lost) return;
  news = true;
  const std::string node = node_of(event.peer);
  if (node.empty()) return;
  nodes.erase(event.peer);
  AgentState& agent = agents[node];
  agent.peer = 0;
  if (event.goodbye) {
    agent.left = true;  // the agent says goodbye at the job's end
  } else {
    agent.broken.emplace();
    agent.reason = event.reason;
  }
}

/// Decides for each broken connection whether the agent died alone or with its node. The
/// step of an agent that died alone ends at once. The step on a lost node ends only when
/// Slurm notices the loss. The fleet waits for all these agents together, since the loss
/// of a switch may break many connections.
void AgentFleet::State::settle_broken() {
  for (auto& [node, agent] : agents) {
    while (agent.broken && agent.step && !agent.step->poll() &&
           agent.broken->seconds() < kStepEndSeconds) {
      serve(0.05);
    }
    if (!agent.broken) continue;
    agent.broken.reset();
    replace_or_lose(node, agent.reason);
  }
}

void AgentFleet::State::replace_or_lose(const std::string& node,
                                        const std::string& reason) {
  AgentState& agent = agents[node];
  if (agent.step && agent.step->poll() && agent.starts < kAgentStarts) {
    notes.push_back(
        fmt::format("the agent on {} ended ({}); it is started again", node, reason));
    start_agent(node);
  } else {
    agent.lost = true;
    agent.report.reset();
    notes.push_back(fmt::format("the agent on {} does not answer: {}", node, reason));
  }
}

void AgentFleet::State::look_at_silent() {
  for (auto& [node, agent] : agents) {
    // Slurm may end the step on a lost node before the agent's silence is noticed.
    const bool awaited =
        agent.peer == 0 && agent.starts > 1 && !agent.left && !agent.lost;
    if (awaited && (agent.step->poll() || agent.started.seconds() > kReturnSeconds)) {
      agent.lost = true;
      agent.report.reset();
      notes.push_back(
          fmt::format("the agent on {} was started again, but does not connect", node));
    }
    if (agent.peer == 0 || agent.busy) continue;
    if (server.silent_seconds(agent.peer) < kSilentSeconds) continue;
    server.close(agent.peer);
    agent.peer = 0;
    replace_or_lose(node,
                    fmt::format("it has sent nothing for {:.0f} s", kSilentSeconds));
  }
  if (server.refused() > refused) {
    refused = server.refused();
    notes.push_back("a connection without this job's secret was refused: " +
                    server.last_refusal());
  }
}

/// Tells all agents that this supervisor lives, and each agent whose place has changed
/// how many agents stand in before it.
void AgentFleet::State::tell_turns() {
  if (beats.seconds() - beaten < kBeatSeconds) return;
  beaten = beats.seconds();
  server.send_all(
      order_message(BeatOrder{options.lease_number, report_seconds(agents.size())}));
  if (options.stand_in.empty()) return;
  const auto tell = [&](const std::string& node, int turn) {
    const auto agent = agents.find(node);
    if (agent == agents.end() || agent->second.peer == 0) return false;
    if (std::exchange(agent->second.turn, turn) != turn) {
      server.send(agent->second.peer,
                  order_message(SucceedOrder{turn, options.stand_in}));
    }
    return true;
  };
  int turn = 0;
  for (const std::string& node : options.successors) {
    if (node != options.here && tell(node, turn)) turn = std::min(turn + 1, kLastTurn);
  }
  // The supervisor's own node comes last, as it is probably lost with the supervisor.
  tell(options.here, kLastTurn);
}

/// Counts all silence anew after a pause of this process, which may have missed messages.
void AgentFleet::State::look_at_pauses() {
  const double pause = pauses.turn();
  if (pause == 0.0) return;
  server.forgive_silence();
  for (auto& [node, agent] : agents) agent.started = system::Stopwatch();
  notes.push_back(
      fmt::format("this supervisor stood still for {:.0f} s: silence of agents in that "
                  "time does not count",
                  pause));
}

void AgentFleet::wait(double seconds) {
  // Hundreds of agents report all the time, and most reports can wait for the next look.
  state_->news = false;
  const system::Stopwatch watch;
  do {
    const double left = std::max(0.0, seconds - watch.seconds());
    state_->serve(left);
    state_->look_at_pauses();
  } while (!state_->news && watch.seconds() < seconds);
  state_->settle_broken();
  state_->look_at_silent();
  state_->tell_turns();
  if (state_->steps_looked.seconds() < kStepLookSeconds) return;
  state_->steps_looked = system::Stopwatch();
  for (auto& [node, agent] : state_->agents) {
    if (agent.step) agent.step->poll();  // copies the lines of its srun
  }
}

NodeReports AgentFleet::reports() {
  NodeReports all;
  for (const std::string& node : state_->options.nodes) {
    const AgentState& agent = state_->agents[node];
    if (agent.report) all.push_back(agent.report);
  }
  return all;
}

std::vector<std::string> AgentFleet::lost_nodes() {
  std::vector<std::string> lost;
  for (auto& [node, agent] : state_->agents) {
    if (!agent.lost || agent.told_lost) continue;
    agent.told_lost = true;
    lost.push_back(node);
  }
  return lost;
}

double AgentFleet::longest_silence() const {
  double longest = 0.0;
  for (const auto& [node, agent] : state_->agents) {
    if (agent.peer == 0 || agent.busy) continue;
    longest = std::max(longest, state_->server.silent_seconds(agent.peer));
  }
  return longest;
}

void AgentFleet::signal(int number, const std::vector<int>& ranks) {
  state_->server.send_all(order_message(SignalOrder{number, ranks}));
  state_->server.poll(0.0);
}

void AgentFleet::ask_to_end(int cause) {
  state_->server.send_all(order_message(SignalOrder{SIGUSR1, {}, cause}));
  state_->server.poll(0.0);
}

void AgentFleet::forget() {
  ++state_->start;
  for (auto& [node, agent] : state_->agents) {
    agent.report.reset();
    if (agent.peer != 0) agent.forgot = state_->start;
  }
  state_->server.send_all(order_message(ForgetOrder{state_->start}));
  // Workers must not begin before the records of the last start are gone.
  const system::Stopwatch watch;
  const auto missing = [&] {
    return std::ranges::any_of(state_->agents, [](const auto& agent) {
      return agent.second.peer != 0 && !agent.second.report;
    });
  };
  do {
    wait(0.05);
  } while (missing() && watch.seconds() < kSilentSeconds);
}

std::map<int, std::string> AgentFleet::stacks(const std::vector<int>& ranks) {
  std::map<int, std::string> all;
  for (auto& [node, agent] : state_->agents) agent.stacks.clear();
  state_->server.send_all(order_message(StacksOrder{ranks}));
  const system::Stopwatch watch;
  while (all.size() < ranks.size() && watch.seconds() < kStackSeconds) {
    wait(0.1);
    for (const auto& [node, agent] : state_->agents) {
      all.insert(agent.stacks.begin(), agent.stacks.end());
    }
  }
  return all;
}

std::vector<HealthReport> AgentFleet::check_health(const std::vector<std::string>& nodes,
                                                   const HealthOptions& options,
                                                   double seconds) {
  // Before the first start the agents may still be on their way.
  await_agents(std::min(seconds, kAgentSeconds), nodes);
  std::vector<AgentState*> asked;
  for (auto& [node, agent] : state_->agents) {
    agent.health.reset();
    if (agent.peer == 0) continue;
    if (!nodes.empty() && std::ranges::count(nodes, node) == 0) continue;
    HealthOptions own = options;
    own.peers = state_->peers_of(node);
    state_->server.send(agent.peer, order_message(HealthOrder{std::move(own)}));
    agent.busy = true;
    asked.push_back(&agent);
  }
  const system::Stopwatch watch;
  const auto missing = [](const AgentState* agent) {
    return agent->peer != 0 && !agent->health;
  };
  while (std::ranges::any_of(asked, missing) && watch.seconds() < seconds) wait(0.05);
  std::vector<HealthReport> reports;
  for (AgentState* agent : asked) {
    agent->busy = false;
    if (agent->health) reports.push_back(std::move(*agent->health));
  }
  return reports;
}

std::vector<NodePaths> AgentFleet::view_paths(const std::vector<NeededPath>& needed) {
  await_agents(kAgentSeconds);
  std::vector<std::pair<std::string, AgentState*>> asked;
  for (auto& [node, agent] : state_->agents) {
    agent.paths.reset();
    if (agent.peer == 0) continue;
    state_->server.send(agent.peer, order_message(PathsOrder{needed}));
    asked.emplace_back(node, &agent);
  }
  const system::Stopwatch watch;
  const auto missing = [](const auto& one) {
    return one.second->peer != 0 && !one.second->paths;
  };
  while (std::ranges::any_of(asked, missing) && watch.seconds() < kPathsSeconds) {
    wait(0.05);
  }
  std::vector<NodePaths> found;
  for (auto& [node, agent] : asked) {
    if (agent->paths) found.push_back({node, std::move(*agent->paths)});
  }
  return found;
}

/// Returns the nodes to which this node tests its connections: those that follow it by
/// name, with the first node behind the last one. If there are few nodes these are all
/// others, so that each pair is tested from both ends.
std::vector<PeerNode> AgentFleet::State::peers_of(const std::string& node) const {
  std::vector<PeerNode> peers;
  const auto own = agents.find(node);
  for (auto other = std::next(own); peers.size() < kMostPeers; ++other) {
    if (other == agents.end()) other = agents.begin();
    if (other == own) break;
    if (other->second.peer != 0 && other->second.door) {
      peers.push_back(*other->second.door);
    }
  }
  return peers;
}

double AgentFleet::stood_seconds() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [node, agent] : state_->agents) {
    if (agent.peer != 0) least = std::min(least, agent.stood);
  }
  return least;
}

void AgentFleet::abandon() { state_->abandoned = true; }

std::vector<std::string> AgentFleet::take_notes() {
  return std::exchange(state_->notes, {});
}

void AgentFleet::await_agents(double seconds, const std::vector<std::string>& asked) {
  const system::Stopwatch watch;
  const auto awaited = [&](const std::string& node) {
    return std::ranges::count(asked, node) > 0 ||
           std::ranges::count(state_->options.not_awaited, node) == 0;
  };
  const auto waiting = [&] {
    return std::ranges::any_of(state_->agents, [&](auto& agent) {
      return awaited(agent.first) && agent.second.peer == 0 && !agent.second.lost &&
             agent.second.step && !agent.second.step->poll();
    });
  };
  // A signal that asks this process to end also ends the wait for the agents.
  while (waiting() && watch.seconds() < seconds && system::raised_signal().number == 0) {
    wait(0.1);
  }
}

std::vector<std::string> AgentFleet::usable_nodes(double patience_seconds) {
  await_agents(patience_seconds);
  std::vector<std::string> answering;
  for (const std::string& node : state_->options.nodes) {
    if (state_->agents[node].peer != 0) answering.push_back(node);
  }
  return state_->options.usable(answering);
}

}  // namespace longhaul::cluster
