#include "bench/control_ranks.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/cluster/agent/agent.h"
#include "longhaul/run/rank_record.h"

namespace longhaul::bench {

using namespace cluster;

std::string node_name(int node) {
  return fmt::format("127.1.{}.{}", node / 250, node % 250 + 1);
}

NodeDirectories directories_of(const fs::path& dir, const std::string& node) {
  return {dir / node};
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

run::Place place(int rank, const Size& size) {
  return {.dp = rank / size.per_node % size.nodes, .tp = rank % size.per_node};
}

namespace {

constexpr double kTickSeconds = 0.5;

[[noreturn]] void be_rank(const fs::path& dir, int rank, const Size& size, int start) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  static volatile std::sig_atomic_t asked = 0;
  std::signal(SIGUSR1, [](int) { asked = 1; });
  const std::string node = node_name(rank / size.per_node);
  run::RankRecord record =
      run::RankRecord::create(directories_of(dir, node).records(), rank, size.ranks());
  record.set_place(place(rank, size));
  int64_t number = 0;
  // The steps lie beyond those of the last start, since a fault at the same step again
  // would end the run.
  for (int64_t step = 1000 * start + 1; asked == 0; ++step) {
    for (const char* phase : {"forward", "backward", "gradients", "update"}) {
      record.set(phase, step);
      for (const char* group : {"tp", "data", "shard"}) {
        const run::OperationName name = {group, "all_reduce", ++number, 4096, "bucket 3"};
        record.ended(record.started(name));
      }
    }
    const run::OperationName name = {"data", "all_gather", ++number, 4096, "bucket 4"};
    const uint64_t operation = record.started(name);
    record.waits(operation, name);
    sleep_seconds(kTickSeconds);
    record.waited();
    record.ended(operation);
    sleep_seconds(kTickSeconds);
    record.step_done(2 * kTickSeconds, kTickSeconds);
  }
  record.finished(kExitTemporary);
  ::_exit(kExitTemporary);
}

}  // namespace

int start_ranks(const fs::path& dir, const Size& size) {
  const char* restart = std::getenv("LONGHAUL_RESTART");
  const int start = restart == nullptr ? 0 : std::atoi(restart);
  for (int rank = 0; rank < size.ranks(); ++rank) {
    const pid_t child = ::fork();
    if (child == 0) be_rank(dir, rank, size, start);
    if (child < 0) throw TemporaryError("bench", "fork failed");
  }
  bool saved = true;
  for (int status = 0; ::wait(&status) > 0;) {
    saved = saved && WIFEXITED(status) && WEXITSTATUS(status) == kExitTemporary;
  }
  return saved ? kExitTemporary : 1;
}

int be_agent(int count, char** words) {
  AgentOptions options;
  for (int i = 0; i + 1 < count; i += 2) {
    const std::string name = words[i];
    if (name == "--node") options.node = words[i + 1];
    if (name == "--host") options.host = words[i + 1];
    if (name == "--port") options.port = std::atoi(words[i + 1]);
    if (name == "--run-dir") options.run_dir = words[i + 1];
  }
  options.directories = directories_of(options.run_dir, options.node);
  const auto secret = Secret::read_line(STDIN_FILENO);
  if (!secret) throw ConfigError("bench", "an agent without a secret");
  return run_agent(options, *secret);
}

}  // namespace longhaul::bench
