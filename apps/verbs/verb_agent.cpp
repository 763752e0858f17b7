#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "apps/supervised_run.h"
#include "apps/verbs/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/cluster/agent/agent.h"
#include "longhaul/cluster/slurm/job.h"
#include "longhaul/cluster/slurm/stand_in.h"
#include "longhaul/run/files.h"

namespace longhaul::apps {
namespace {

struct AgentArguments {
  std::string node;
  std::string host;
  int port = 0;
  std::string run_dir;
  std::string job;
};

int agent(const AgentArguments& arguments) {
  const auto secret = cluster::Secret::read_line(STDIN_FILENO);
  if (!secret) {
    throw ConfigError("agent",
                      "no secret came with it: agents are started by longhaul "
                      "supervise and launch");
  }
  const cluster::SlurmClient slurm;
  cluster::AgentOptions options;
  options.node = arguments.node;
  options.host = arguments.host;
  options.port = arguments.port;
  options.directories = cluster::node_directories(arguments.run_dir, arguments.job);
  options.supervisor_lock = fs::path(arguments.run_dir) / kSupervisorLockFile;
  cluster::StandInOptions stand_in;
  stand_in.job = arguments.job;
  stand_in.log = fmt::format("{}/slurm-{}.log", arguments.run_dir, arguments.job);
  options.stand_in = [&](const std::vector<std::string>& words,
                         const std::function<int()>& raised) {
    stand_in.words = words;
    stand_in.raised = raised;
    return cluster::stand_in_for_script(stand_in, slurm);
  };
  options.requeue = [&](const std::vector<std::string>& words) {
    stand_in.words = words;
    cluster::requeue_orphan(stand_in, slurm);
  };
  options.requeue_deserted = [&](const std::vector<std::string>& words) {
    stand_in.words = words;
    cluster::requeue_deserted(stand_in, slurm);
  };
  options.requeue_without_storage = [&] {
    cluster::requeue_without_storage(stand_in, slurm);
  };
  return cluster::run_agent(options, *secret);
}

}  // namespace

void add_agent(CLI::App& program, Outcome& outcome) {
  auto arguments = std::make_shared<AgentArguments>();
  CLI::App* verb = program.add_subcommand(
      "agent", "What longhaul supervise runs on each node of a job; not for people");
  verb->group("");  // no part of the list of verbs
  verb->add_option("--node", arguments->node, "this node's name in Slurm")->required();
  verb->add_option("--host", arguments->host, "where the supervisor listens")->required();
  verb->add_option("--port", arguments->port, "its port")->required();
  verb->add_option("--run-dir", arguments->run_dir, "run.dir")->required();
  verb->add_option("--job", arguments->job, "Slurm's number of the job");
  verb->footer(
      "Started by longhaul supervise, with the job's secret as the first line of its "
      "input.");
  verb->callback([arguments, &outcome] { outcome.exit_code = agent(*arguments); });
}

}  // namespace longhaul::apps
