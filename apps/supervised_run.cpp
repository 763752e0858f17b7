#include "apps/supervised_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <utility>

#include "apps/run_of_job.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/slurm/run_note.h"
#include "longhaul/config/named_paths.h"
#include "longhaul/data/input/path_pattern.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/files.h"
#include "longhaul/system/terminal.h"
#include "longhaul/train/log/metrics.h"

namespace longhaul::apps {
namespace {

/// The nodes compare at most so many paths: a node that lacks one mostly lacks others
/// too.
constexpr size_t kMostNeeded = 64;
/// The program beside `longhaul` that it becomes for the verbs that compute.
constexpr const char* kTorchProgram = "longhaul-torch";

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

/// Returns the paths that every node of the run must see alike, and the paths at which
/// each node makes files of its own.
std::vector<cluster::NeededPath> needed_paths(const RunConfig& config,
                                              const fs::path& memory) {
  using cluster::PathRole;
  std::vector<cluster::NeededPath> needed;
  const auto add = [&](const char* what, const fs::path& path, PathRole role) {
    if (path.empty() || objects::is_address(path)) return;  // nodes fetch copies
    if (needed.size() >= kMostNeeded) return;
    needed.push_back({what, fs::absolute(path).lexically_normal(), role});
  };
  const char* temporary = std::getenv("TMPDIR");
  const fs::path program = this_program();
  add("the run's directory", config.run.dir, PathRole::Run);
  add("the run's checkpoints", checkpoint_dir(config), PathRole::Checkpoints);
  add("the program", program, PathRole::Input);
  add("the program", program.parent_path() / kTorchProgram, PathRole::Input);
  add("TMPDIR", temporary == nullptr ? "/tmp" : temporary, PathRole::Room);
  add("the node's memory", memory, PathRole::Room);
  for (const NamedPath& named : named_paths(config)) {
    // A pattern is left out, because nodes compare single paths only.
    const bool pattern = named.may_be_pattern && data::is_pattern(named.path);
    if (named.use == PathUse::Reads && !pattern) {
      add(named.key, named.path, PathRole::Input);
    }
  }
  return needed;
}

/// Returns what is wrong with a file of settings; empty: nothing.
std::string problem_of_settings(const std::string& file,
                                const std::vector<std::string>& sets) {
  try {
    load_run_config(file, sets);
    return {};
  } catch (const Error& problem) {
    return problem.message();
  }
}

bool can_be_read(const fs::path& file) {
  return std::ifstream(file).peek() != std::ifstream::traits_type::eof();
}

}  // namespace

std::string settings_file(const std::string& file, const fs::path& run_dir,
                          const std::vector<std::string>& sets, bool goes_on) {
  const fs::path copy = run_dir / run::kConfigFile;
  std::string problem = can_be_read(file) ? "" : "the file is absent or empty";
  if (problem.empty() && goes_on) problem = problem_of_settings(file, sets);
  if (problem.empty() || run_dir.empty() || !can_be_read(copy)) return file;
  fmt::print(stderr,
             "longhaul: {} cannot be read any more; the run's own copy of the settings "
             "is used: {} ({})\n",
             system::printable(file), system::printable(copy.string()),
             system::printable(problem));
  return copy.string();
}

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
  options.run = expected_run(config.run.dir);
  if (!options.job.empty() && cluster::has_program("scontrol")) {
    options.note_run = [job = options.job, dir = config.run.dir](const std::string& run) {
      cluster::note_run(cluster::SlurmClient(), job, dir, run);
    };
  }
  options.needed = needed_paths(config, options.directories.records());
  return options;
}

int run_supervisor(cluster::SupervisorOptions options, cluster::Launcher launcher,
                   cluster::Fleet& fleet, system::OwnerLock lease) {
  const fs::path run_dir = options.run_dir;
  const int code = cluster::supervise(std::move(options), std::move(launcher), fleet,
                                      std::move(lease));
  if (code == kExitSuperseded || code == kExitNotHere) return code;
  try {
    train::settle_time_to_train(run_dir);
  } catch (const Error& problem) {
    fmt::print(stderr, "longhaul: {} does not have the run's last seconds: {}\n",
               run::kResultsFile, system::printable(problem.what()));
  }
  return code;
}

std::vector<std::string> train_words(std::vector<std::string> words,
                                     const std::string& file,
                                     const std::vector<std::string>& sets,
                                     const cluster::Attempt& attempt,
                                     const std::string& rehearse,
                                     const std::string& program) {
  words.insert(words.end(), {program.empty() ? this_program() : program, "train", file});
  for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
  if (!rehearse.empty()) words.push_back(rehearse);
  if (attempt.resume) words.insert(words.end(), {"--set", "checkpoint.resume=latest"});
  return words;
}

}  // namespace longhaul::apps
