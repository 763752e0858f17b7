#include <unistd.h>

#include <memory>

#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/cluster/agent/agent.h"
#include "longhaul/cluster/process/passed_environment.h"

namespace longhaul::apps {
namespace {

int agent(cluster::AgentOptions& options, bool environment) {
  const auto secret = cluster::Secret::read_line(STDIN_FILENO);
  if (!secret) {
    fail_config("agent",
                "an agent reads the job's secret from standard input, and none came; "
                "longhaul supervise and longhaul launch start agents, people do not");
  }
  if (environment) cluster::take_variables(STDIN_FILENO);
  options.directories = cluster::node_directories(options.run_dir, options.job);
  return cluster::run_agent(options, *secret);
}

}  // namespace

void add_agent(CLI::App& program, Outcome& outcome) {
  auto arguments = std::make_shared<cluster::AgentOptions>();
  auto environment = std::make_shared<bool>(false);
  CLI::App* verb = program.add_subcommand(
      "agent", "What longhaul supervise runs on each node of a job; not for people");
  verb->group("");  // no part of the list of verbs
  verb->add_option("--node", arguments->node, "this node's name in Slurm")->required();
  verb->add_option("--host", arguments->host, "host on which the supervisor listens")
      ->required();
  verb->add_option("--port", arguments->port, "the supervisor's port")->required();
  verb->add_option("--run-dir", arguments->run_dir, "the run's directory (run.dir)")
      ->required();
  verb->add_option("--job", arguments->job, "Slurm's job id");
  verb->add_flag("--environment", *environment,
                 "the run's variables follow the secret in the input");
  verb->footer(
      "longhaul supervise starts this verb and writes the job's secret as the first line "
      "of its standard input.");
  verb->callback([arguments, environment, &outcome] {
    outcome.exit_code = agent(*arguments, *environment);
  });
}

}  // namespace longhaul::apps
