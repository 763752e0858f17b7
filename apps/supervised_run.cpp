#include "apps/supervised_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/process.h"
#include "longhaul/run/files.h"
#include "longhaul/system/terminal.h"
#include "longhaul/train/log/metrics.h"

namespace longhaul::apps {
namespace {

int count_entries(const fs::path& dir, const std::string& prefix) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    const bool numbered =
        name.starts_with(prefix) && name.size() > prefix.size() &&
        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (numbered) ++count;
  }
  return count;
}

}  // namespace

int ranks_of_this_node() {
  if (const int gpus = count_entries("/dev", "nvidia"); gpus > 0) return gpus;
  return std::max(1, count_entries("/sys/devices/system/node", "node"));
}

cluster::SupervisorOptions supervisor_options(const RunConfig& config, int ranks) {
  cluster::SupervisorOptions options;
  options.run_dir = config.run.dir;
  options.checkpoint_dir = checkpoint_dir(config);
  options.job = job_id();
  options.directories = cluster::node_directories(config.run.dir, options.job);
  options.rules.max_restarts = config.resilience.max_restarts;
  options.hang.quiet_seconds = config.resilience.hang_timeout_s;
  options.health.quick = true;
  options.health.directories = {fs::absolute(config.run.dir)};
  options.health.command = config.resilience.health_command;
  options.health.unhealthy_file = config.resilience.unhealthy_file;
  options.ranks = ranks;
  return options;
}

int run_supervisor(cluster::SupervisorOptions options, cluster::Launcher launcher,
                   cluster::Fleet& fleet, system::OwnerLock lease) {
  const fs::path run_dir = options.run_dir;
  const int code = cluster::Supervisor(std::move(options), std::move(launcher), fleet,
                                       std::move(lease))
                       .run();
  if (code == kExitSuperseded) return code;
  try {
    train::settle_time_to_train(run_dir);
  } catch (const Error& problem) {
    fmt::print(stderr, "longhaul: {} lacks the last seconds: {}\n", run::kResultsFile,
               system::printable(problem.what()));
  }
  return code;
}

std::vector<std::string> train_words(std::vector<std::string> words,
                                     const std::string& file,
                                     const std::vector<std::string>& sets,
                                     const cluster::Attempt& attempt,
                                     const std::string& program) {
  words.insert(words.end(), {program.empty() ? this_program() : program, "train", file});
  for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
  if (attempt.resume) words.insert(words.end(), {"--set", "checkpoint.resume=latest"});
  return words;
}

}  // namespace longhaul::apps
