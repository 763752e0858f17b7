#pragma once

#include <string>
#include <vector>

namespace longhaul::cluster {

/// What every batch script needs.
struct BatchJob {
  std::string name;                  ///< of the job in the queue
  int nodes = 1;                     ///< asked of Slurm, spares among them
  std::string partition;             ///< empty: the cluster's default
  std::string time_limit;            ///< as Slurm writes it; empty: the partition's
  std::string log;                   ///< absolute; %j stands for the job's number
  std::string directory;             ///< where relative paths start; absolute
  std::vector<std::string> after;    ///< jobs that have to succeed first
  std::vector<std::string> options;  ///< more options of sbatch, as they are
  int signal_seconds = 300;          ///< before the time limit
  std::string program;               ///< longhaul itself, absolute
};

/// How a run is supervised: the arguments of `longhaul supervise`.
struct SuperviseCommand {
  std::string config;             ///< absolute
  std::vector<std::string> sets;  ///< --set of the command line
  int nodes = 1;                  ///< that train
  int spares = 0;
  int ranks_per_node = 0;  ///< 0: the nodes decide
  std::string container;   ///< image for pyxis; empty: none
  bool platform_replaces_nodes = false;
  int signal_seconds = 300;  ///< before the time limit the run saves and ends
};

/// The command's words, for a script or an exec.
std::vector<std::string> supervise_words(const std::string& program,
                                         const SuperviseCommand& command);

/// A supervised run.
struct SuperviseJob {
  BatchJob batch;
  SuperviseCommand command;
};

/// Any other verb, as a step of its own.
struct VerbJob {
  BatchJob batch;
  std::vector<std::string> words;  ///< the verb and its arguments
  int tasks_per_node = 1;
  std::string container;
  /// Run once, by the script itself: the verb starts job steps of its own.
  bool starts_steps = false;
};

/// The text of the script, ready for sbatch: readable, to be changed by hand, without a
/// host's name. InputError for names, paths and options that a script cannot hold safely.
std::string supervise_script(const SuperviseJob& job);
std::string verb_script(const VerbJob& job);

}  // namespace longhaul::cluster
