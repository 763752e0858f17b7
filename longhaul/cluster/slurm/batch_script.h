#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/slurm/container.h"

namespace longhaul::cluster {

/// What every batch script says to Slurm.
struct BatchJob {
  std::string name;                  ///< name of the job in the queue
  int nodes = 1;                     ///< nodes asked of Slurm, spares included
  std::string partition;             ///< empty: the cluster's default
  std::string time_limit;            ///< as Slurm writes it; empty: the partition's
  std::string log;                   ///< absolute; %j stands for the job's number
  std::string directory;             ///< where relative paths start; absolute
  std::vector<std::string> after;    ///< jobs that have to succeed first
  std::vector<std::string> options;  ///< more options of sbatch, unchanged
  int signal_seconds = 300;          ///< seconds from the signal to the time limit
  std::string program;               ///< longhaul itself, absolute or of an image
};

/// The arguments of `longhaul supervise`.
struct SuperviseCommand {
  std::string config;             ///< absolute
  std::vector<std::string> sets;  ///< --set of the command line
  int nodes = 1;                  ///< nodes that train
  int spares = 0;
  int ranks_per_node = 0;                          ///< 0: the nodes decide
  std::string container;                           ///< image for pyxis; empty: none
  std::vector<std::string> container_mounts = {};  ///< more than the run itself names
  std::string container_program = {};  ///< longhaul in the image; empty: this program
  /// The run's directory, absolute. Its config.toml is read if `config` is not there any
  /// more.
  std::string run_dir = {};
  bool platform_replaces_nodes = false;
  std::string rehearse = {};  ///< --rehearse or --no-rehearse; empty: none was given
  int signal_seconds = 300;   ///< the run saves this long before the time limit
};

/// Returns the command line of `longhaul supervise`.
std::vector<std::string> supervise_words(const std::string& program,
                                         const SuperviseCommand& command);

/// A batch job that runs a supervised run.
struct SuperviseJob {
  BatchJob batch;
  SuperviseCommand command;
  bool compile_first = false;  ///< a step of `longhaul compile` comes before the run
  Container container = {};    ///< the container of that step
};

/// A batch job that runs any other verb, as a step of its own.
struct VerbJob {
  BatchJob batch;
  std::vector<std::string> words;  ///< the verb and its arguments
  int tasks_per_node = 1;
  Container container = {};
  /// The script itself runs the verb once, because the verb starts job steps.
  bool starts_steps = false;
};

/// Returns the text of a script for sbatch, which a person can read and change and which
/// names no host. Throws InputError for names, paths and options that a script cannot
/// hold safely.
std::string supervise_script(const SuperviseJob& job);
/// Returns the script of another verb. Throws the same errors as supervise_script().
std::string verb_script(const VerbJob& job);

}  // namespace longhaul::cluster
