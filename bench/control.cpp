// Runs the real supervisor and real agents over ranks that only keep their records;
// bench_control.py says what is measured.
//   longhaul_control_tool supervise DIR NODES RANKS_PER_NODE RESTARTS REST_SECONDS
//   [played]
// All "machines" are this one: node names are numeric addresses of its loopback
// interface. Prints JSON. With `played` one process speaks for many nodes, over one
// connection for each, and makes up their ranks, for more nodes than this machine can
// hold.

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/control_played.h"
#include "bench/control_ranks.h"
#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/agent/agent_fleet.h"
#include "longhaul/cluster/record/status_file.h"
#include "longhaul/cluster/supervisor/supervisor.h"
#include "longhaul/cluster/supervisor/supervisor_lease.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/system/stopwatch.h"

namespace {

using namespace longhaul;
using namespace longhaul::bench;
using namespace longhaul::cluster;

/// How many nodes check their health before the first start. On a cluster all nodes check
/// themselves at the same time; here they would take turns on a few cores.
constexpr size_t kCheckedNodes = 2;

double cpu_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

double cpu_seconds_of(int64_t pid) {
  const auto fields = stat_fields(fmt::format("/proc/{}", pid));
  if (fields.size() < 13) return 0.0;
  return (std::stod(fields[11]) + std::stod(fields[12])) /
         static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// Returns the bytes, in both directions, of all open connections of this process.
uint64_t wire_bytes() {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    const int fd = std::atoi(entry.path().filename().c_str());
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    bytes += info.tcpi_bytes_received + info.tcpi_bytes_acked;
  }
  return bytes;
}

size_t open_descriptors() {
  const fs::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

/// The real fleet, with a clock beside it. When all ranks report and the machine has come
/// to rest, it measures for a while, then kills a rank. After the last start it asks this
/// process to end.
class MeasuredFleet : public Fleet {
 public:
  MeasuredFleet(AgentFleet& fleet, const Size& size, fs::path dir, int restarts,
                double rest_seconds, const std::vector<int64_t>& agents)
      : fleet_(fleet),
        size_(size),
        dir_(std::move(dir)),
        restarts_(restarts),
        rest_seconds_(rest_seconds),
        agents_(agents) {}

  void wait(double seconds) override {
    fleet_.wait(seconds);
    const double now = clock_.seconds();
    if (all_at_ > 0.0 && rest_at_ == 0.0 && now > all_at_ + 2.0) begin_rest();
    if (rest_at_ > 0.0 && now > rest_at_ + rest_seconds_) end_rest();
  }
  NodeReports reports() override {
    NodeReports reports = fleet_.reports();
    if (launched_at_ > 0.0 && all_at_ == 0.0) {
      size_t seen = 0;
      for (const auto& report : reports) seen += report->ranks.size();
      if (seen == static_cast<size_t>(size_.ranks())) all_there();
    }
    if (rest_at_ > 0.0 && newest_.empty()) newest_ = reports;
    return reports;
  }
  std::vector<std::string> lost_nodes() override { return fleet_.lost_nodes(); }
  double longest_silence() const override { return fleet_.longest_silence(); }
  void signal(int number, const std::vector<int>& ranks) override {
    if (number == SIGKILL && killed_at_ > 0.0 && verdict_at_ == 0.0) {
      verdict_at_ = clock_.seconds();
    }
    fleet_.signal(number, ranks);
  }
  void ask_to_end(int cause) override { fleet_.ask_to_end(cause); }
  void forget() override {
    const system::Stopwatch watch;
    if (verdict_at_ > 0.0) ended_at_ = clock_.seconds();
    fleet_.forget();
    forget_seconds_ = watch.seconds();
  }
  std::map<int, std::string> stacks(const std::vector<int>& ranks) override {
    return fleet_.stacks(ranks);
  }
  std::vector<HealthReport> check_health(const std::vector<std::string>& nodes,
                                         const HealthOptions& options,
                                         double seconds) override {
    const system::Stopwatch watch;
    std::vector<std::string> asked = nodes;
    for (int i = 0; nodes.empty() && i < std::min<int>(kCheckedNodes, size_.nodes); ++i) {
      asked.push_back(node_name(i));
    }
    auto reports = fleet_.check_health(asked, options, seconds);
    health_seconds_ = watch.seconds();
    return reports;
  }
  std::vector<std::string> take_notes() override {
    auto notes = fleet_.take_notes();
    notes_ += notes.size();
    return notes;
  }

  /// Notes that the ranks are started now.
  void launches() {
    launched_at_ = clock_.seconds();
    launched_machine_ = machine_seconds();
  }

  Json result() const {
    return {{"starts", starts_},
            {"rests", rests_},
            {"notes", notes_},
            {"descriptors", descriptors_},
            {"status_bytes", status_bytes_},
            {"status_seconds", status_seconds_},
            {"peak_bytes", peak_resident_bytes()}};
  }

 private:
  /// Returns the seconds that the launcher and the ranks themselves took.
  double seconds_of_ranks() const {
    double last = launched_machine_;
    if (size_.played) return 0.0;
    for (int node = 0; node < size_.nodes; ++node) {
      const auto records = directories_of(dir_, node_name(node)).records();
      for (const fs::path& path : paths_in(records)) {
        if (path.extension() != ".record") continue;
        last = std::max(last, run::read_rank_record(path).created);
      }
    }
    return last - launched_machine_;
  }

  void all_there() {
    all_at_ = clock_.seconds();
    const double of_ranks = seconds_of_ranks();
    Json start = {{"of_ranks", of_ranks},
                  {"health", health_seconds_},
                  {"forget", forget_seconds_},
                  {"reported", all_at_ - launched_at_},
                  {"wire_bytes", wire_bytes() - wire_mark_},
                  {"seconds", all_at_ - mark_at_},
                  {"cpu", cpu_seconds() - cpu_mark_}};
    if (verdict_at_ > 0.0) {
      start["verdict"] = verdict_at_ - killed_at_;
      start["ended"] = ended_at_ - verdict_at_;
      start["restart"] = all_at_ - verdict_at_;
      start["control"] = all_at_ - verdict_at_ - of_ranks;
    } else {
      start["control"] = all_at_ - of_ranks;
    }
    starts_.push_back(std::move(start));
  }

  double cpu_of_agents() const {
    double sum = 0.0;
    for (const int64_t pid : agents_) sum += cpu_seconds_of(pid);
    return sum;
  }

  void begin_rest() {
    newest_.clear();
    agents_before_ = cpu_of_agents();
    wire_before_ = wire_bytes();
    rest_at_ = clock_.seconds();
    cpu_mark_ = cpu_seconds();
  }

  void end_rest() {
    const double cpu = cpu_seconds() - cpu_mark_;
    const double seconds = clock_.seconds() - rest_at_;
    rests_.push_back(
        {{"cpu", cpu / seconds},
         {"wire_bytes_per_second",
          static_cast<double>(wire_bytes() - wire_before_) / seconds},
         {"agent_cpu", (cpu_of_agents() - agents_before_) / seconds / size_.nodes},
         {"resident_bytes", resident_bytes()}});
    descriptors_ = open_descriptors();
    measure_status();
    cpu_mark_ = cpu_seconds();
    wire_mark_ = wire_bytes();
    mark_at_ = clock_.seconds();
    rest_at_ = all_at_ = launched_at_ = verdict_at_ = 0.0;
    if (restarts_-- == 0) {
      std::raise(SIGTERM);
      return;
    }
    killed_at_ = clock_.seconds();
    if (size_.played) return put_mark(dir_, "kill", ++played_start_);
    // The fault is on another node each time, because a node with three faults in a row
    // is left out.
    const int node = (7 * restarts_ + 3) % size_.nodes;
    const ObservedRank& victim = newest_.at(static_cast<size_t>(node))->ranks.front();
    ::kill(static_cast<pid_t>(victim.pid), SIGKILL);
  }

  void measure_status() {
    run::RunStatus status;
    const fs::path path = dir_ / "status_again.json";
    const system::Stopwatch watch;
    take_reports(status, newest_, {});
    // A rank's row is longest while the rank waits. Every rank waits here, so that the
    // size does not depend on chance.
    for (run::RunStatus::Rank& rank : status.ranks) {
      rank.waits_for = "all_gather 1000000 of data, bucket 4";
      rank.waits_seconds = 1.0 / 3.0;
    }
    write_status(path, status);
    status_seconds_ = watch.seconds();
    status_bytes_ = fs::file_size(path);
  }

  AgentFleet& fleet_;
  Size size_;
  fs::path dir_;
  int restarts_;
  double rest_seconds_;
  const std::vector<int64_t>& agents_;
  system::Stopwatch clock_;
  double launched_at_ = 0.0;
  double launched_machine_ = 0.0;
  double all_at_ = 0.0;
  double rest_at_ = 0.0;
  double killed_at_ = 0.0;
  int64_t played_start_ = 0;
  double verdict_at_ = 0.0;
  double ended_at_ = 0.0;
  double forget_seconds_ = 0.0;
  double health_seconds_ = 0.0;
  double cpu_mark_ = 0.0;
  double agents_before_ = 0.0;
  uint64_t wire_before_ = 0;
  uint64_t wire_mark_ = 0;
  double mark_at_ = 0.0;
  size_t notes_ = 0;
  size_t descriptors_ = 0;
  uint64_t status_bytes_ = 0;
  double status_seconds_ = 0.0;
  NodeReports newest_;
  Json starts_ = Json::array();
  Json rests_ = Json::array();
};

int supervise(const fs::path& dir, const Size& size, int restarts, double rest_seconds) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  const system::Stopwatch life;
  system::OwnerLock lease = take_supervision(dir);
  std::vector<int64_t> agents;
  AgentFleetOptions of_fleet;
  of_fleet.here = node_name(0);
  for (int node = 0; node < size.nodes; ++node) of_fleet.nodes.push_back(node_name(node));
  of_fleet.program = program;
  of_fleet.run_dir = dir;
  of_fleet.lease_number = lease.attempt();
  of_fleet.usable = [](const std::vector<std::string>& nodes) { return nodes; };
  of_fleet.start_agent = [&](const std::string& node, std::vector<std::string> words,
                             const Secret& secret) {
    if (size.played) {
      words = player_words(program, dir, size, node, words);
    }
    JobStep step = JobStep::start(words, {}, secret.to_line());
    agents.push_back(step.pid());
    return step;
  };
  AgentFleet fleet(std::move(of_fleet));
  const double forked = life.seconds();
  MeasuredFleet measured(fleet, size, dir, restarts, rest_seconds, agents);
  Launcher launcher;
  launcher.command = [&](const Attempt&) -> std::vector<std::string> {
    const std::vector<std::string> nodes = fleet.usable_nodes(60.0);
    if (nodes.size() != static_cast<size_t>(size.nodes)) {
      throw TemporaryError(
          "bench", fmt::format("{} of {} agents have come", nodes.size(), size.nodes));
    }
    measured.launches();
    return {program, size.played ? "played" : "ranks", dir.string(),
            std::to_string(size.nodes), std::to_string(size.per_node)};
  };
  SupervisorOptions options;
  options.run_dir = dir;
  options.checkpoint_dir = dir / "checkpoints";
  options.directories = {dir / "unused"};
  options.health.quick = true;
  options.health.directories = {dir};
  options.other_nodes = true;
  options.ranks = size.ranks();
  const int code = cluster::supervise(std::move(options), std::move(launcher), measured,
                                      std::move(lease));
  Json result = measured.result();
  result["exit"] = code;
  result["forked"] = forked;
  fmt::print("{}\n", json_text(result));
  return code == kExitTemporary ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    const std::string role = count > 1 ? words[1] : "";
    if (role == "agent") return be_agent(count - 2, words + 2);
    if (count < 5) throw ConfigError("bench", "see bench_control.py");
    Size size = {std::atoi(words[3]), std::atoi(words[4])};
    if (role == "ranks") return start_ranks(words[2], size);
    if (role == "played") return launch_played(words[2]);
    if (count < 7) throw ConfigError("bench", "see bench_control.py");
    if (role == "play") {
      if (count < 8) throw ConfigError("bench", "a player needs seven words");
      return play(words[2], size, std::atoi(words[5]), words[6], std::atoi(words[7]));
    }
    size.played = count > 7;
    return supervise(words[2], size, std::atoi(words[5]), std::atof(words[6]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "longhaul_control_tool: {}\n", error.what());
    return 1;
  }
}
