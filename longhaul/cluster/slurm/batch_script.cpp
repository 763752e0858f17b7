#include "longhaul/cluster/slurm/batch_script.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/cluster/slurm/job.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {
namespace {

/// Returns an #SBATCH line. Slurm reads quotes and backslashes in such a line by rules of
/// its own. Throws InputError for an option that would need quotes or backslashes.
std::string directive(const std::string& option, const std::string& what) {
  if (option.empty() || system::has_control_characters(option) ||
      option.find_first_of("\"'\\#`$") != std::string::npos) {
    fail_input("submit",
               "{} '{}' cannot be written into a batch script: use no quotes, "
               "backslashes, #, $ or control characters",
               what, option.substr(0, 200));
  }
  const bool spaces = option.find(' ') != std::string::npos;
  return spaces ? fmt::format("#SBATCH \"{}\"\n", option)
                : fmt::format("#SBATCH {}\n", option);
}

void check_absolute(const std::string& path, const char* what) {
  if (!path.starts_with('/')) {
    fail_input("submit", "{} '{}' is not an absolute path", what, path);
  }
}

std::string head(const BatchJob& job, const std::string& purpose) {
  check_absolute(job.directory, "the directory");
  check_absolute(job.program, "the program");
  check_absolute(job.log, "the log");
  std::string text =
      "#!/bin/bash\n"
      "# Written by longhaul submit: " +
      purpose +
      ".\n"
      "# It may be changed, and handed to sbatch again.\n";
  text += directive("--job-name=" + job.name, "the name");
  text += directive(fmt::format("--nodes={}", job.nodes), "the number of nodes");
  text += "#SBATCH --exclusive\n";
  if (!job.partition.empty()) {
    text += directive("--partition=" + job.partition, "the partition");
  }
  if (!job.time_limit.empty()) {
    text += directive("--time=" + job.time_limit, "the time limit");
  }
  if (!job.after.empty()) {
    std::string list = "--dependency=afterok";
    for (const std::string& id : job.after) {
      check_job_id(id);
      list += ":" + id;
    }
    text += "# Waits for these jobs; should one fail, this one is removed.\n";
    text +=
        directive(list, "the jobs to wait for") + "#SBATCH --kill-on-invalid-dep=yes\n";
  }
  text += directive("--chdir=" + job.directory, "the directory");
  text += "# One log, also over requeues.\n";
  text += directive("--output=" + job.log, "the log's path");
  text += "#SBATCH --open-mode=append\n#SBATCH --requeue\n";
  return text;
}

std::string more_options(const BatchJob& job) {
  std::string text;
  for (const std::string& option : job.options) {
    if (!option.starts_with('-')) {
      fail_input("submit", "'{}' is no option of sbatch; write --slurm=--account=NAME",
                 option.substr(0, 200));
    }
    text += directive(option, "the option");
  }
  return text;
}

/// Returns shell text that sets an array to these words, on several lines if needed.
std::string array_of(const std::string& name, const std::vector<std::string>& words) {
  std::string text = name + "=(";
  size_t column = text.size();
  for (const std::string& word : words) {
    const std::string quoted = system::shell_word(word);
    if (column > name.size() + 2 && column + quoted.size() > 88) {
      text += "\n  ";
      column = 2;
    } else if (text.back() != '(') {
      text += ' ';
    }
    text += quoted;
    column += quoted.size() + 1;
  }
  return text + ")\n";
}

constexpr const char* kStart = R"sh(set -u
# Slurm's fences by a tree let some ranks leave MPI's start before others can hear them:
# with Open MPI 4.1 a few starts in a hundred crash. By a ring none does.
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
# Every step has this script's variables, also where sbatch was told to pass fewer.
export SLURM_EXPORT_ENV=ALL

)sh";

// Defines `run`, which runs one command so that signals reach it, and notes why it ended.
constexpr const char* kRun = R"sh(
# bash handles a signal only between commands, so the command runs beside it.
child=
limit_near=   # when the signal before the time limit came
stopped=      # Slurm ends the job: scancel, the time limit, a requeue
pass_on() { [ -z "$child" ] || kill -s "$1" "$child" 2>/dev/null; }
trap 'limit_near=${limit_near:-$SECONDS}; woken=1; pass_on USR1' USR1
trap 'stopped=${stopped:-$SECONDS}; woken=1; pass_on TERM' TERM
run() {
  local status
  "$@" &
  child=$!
  while :; do
    woken=
    wait "$child"
    status=$?
    # A trapped signal ends wait early; asked again it has the command's own status.
    [ -n "$woken" ] || break
  done
  child=
  return "$status"
}
say() { echo "longhaul: $(date -u +%FT%TZ) $*"; }
)sh";

constexpr const char* kAgain = R"sh(
# Back into the queue, same job, same log. Never after scancel: that would bring the job
# back to life. The time limit ends a job in the same way, its signal @SIGNAL@ s before. A
# machine that is shut down sends SIGTERM as well, and Slurm lets its job run on, empty.
cancelled() { [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T 2>/dev/null)" != RUNNING ]; }
again() {
  if [ -n "$stopped" ] && { [ -z "$limit_near" ] || [ $((stopped - limit_near)) -lt @EARLY@ ]; }; then
    if cancelled; then
      say "stopped from outside; not requeued"
      exit 143
    fi
    say "stopped from outside, and the job is not cancelled"
  fi
  say "requeue: $*"
@REQUEUE@  # The controller may be away for a while: half an hour at most. What one that has been
  # there for a minute refuses it refuses for good.
  local try
  for try in {1..180}; do
    scontrol requeue "$SLURM_JOB_ID" && break
    { [ -n "$stopped" ] && cancelled; } && exit 143
    [ "$try" -lt 6 ] || ! scontrol ping >/dev/null 2>&1 || exit 75
    sleep 10
  done
  # Slurm now ends this script.
  sleep 600
  exit 75
}
)sh";

// The status 79 says that the run's record allows no further requeue.
constexpr const char* kCountedRequeue = R"sh(  local status=0
  {} || status=$?
  [ "$status" != 79 ] || exit 78
  if [ "$status" = 0 ]; then sleep 600; exit 75; fi
)sh";

/// Returns shell text that defines `again`. `first` is a command of longhaul that
/// requeues the job. If it fails, scontrol requeues the job.
std::string again_text(const BatchJob& job, const std::string& first = {}) {
  std::string text = kAgain;
  const auto put = [&](const std::string& mark, const std::string& value) {
    text.replace(text.find(mark), mark.size(), value);
  };
  put("@REQUEUE@", first.empty() ? "" : fmt::format(kCountedRequeue, first));
  put("@SIGNAL@", std::to_string(job.signal_seconds));
  put("@EARLY@", std::to_string(std::max(1, job.signal_seconds - 5)));
  return text;
}

constexpr const char* kSuperviseLoop = R"sh(
say "job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)), nodes $SLURM_JOB_NODELIST"
crashes=0
later=
while :; do
  run "${supervise[@]}" ${later:+--again}
  status=$?
  later=1
  case $status in
    0) exit 0 ;;
    75) again "the supervisor asks for it" ;;  # why is in the run's record
    1 | 78) exit "$status" ;;  # nothing that a start again would mend
    79) exit "$status" ;;      # the file STOP: saved, and nobody is to start it again
    77)
      # This machine was cut off, stood still for a while, or does not see the run's
      # directory any more. The next one waits until that supervisor is lost too.
      say "the run is for another node's supervisor; this one waits"
      [ -z "$stopped" ] || exit 143
      sleep 5
      continue
      ;;
  esac
  [ -z "$stopped" ] || because=signal again "the supervisor ended with $status"
  # What dies at once in every life would wander through the queue for ever.
  [ "$SECONDS" -gt 600 ] || [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ] || exit "$status"
  crashes=$((crashes + 1))
  [ "$crashes" -le 3 ] ||
    because=crash again "the supervisor has ended $crashes times, now with $status"
  say "the supervisor ended with $status; starts again"
  sleep "$crashes"
done
)sh";

constexpr const char* kCompileFirst = R"sh(
# The nodes that train compile what their steps need. With a cache that has it all this takes
# two steps.
run "${compile[@]}"
status=$?
[ -z "$limit_near" ] || [ -n "$stopped" ] || [ "$status" -le 128 ] || status=75
[ "$status" != 75 ] || [ "${SLURM_RESTART_COUNT:-0}" -ge 20 ] || again "the compilation asks for it"
[ "$status" = 0 ] || exit "$status"
)sh";

constexpr const char* kVerbEnd = R"sh(
say "job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1))"
run "${step[@]}"
status=$?
# 75: the same command can go on later. srun gives the highest status of all tasks, and
# ends the others when one has left: near the time limit "killed" says nothing more.
[ -z "$limit_near" ] || [ -n "$stopped" ] || [ "$status" -le 128 ] || status=75
[ "$status" != 75 ] || [ "${SLURM_RESTART_COUNT:-0}" -ge 20 ] || again "the command asks for it"
exit "$status"
)sh";

/// Returns the words of srun for a step of so many tasks.
std::vector<std::string> srun_words(int nodes, int tasks_per_node,
                                    const Container& container) {
  std::vector<std::string> words = {"srun", fmt::format("--nodes={}", nodes),
                                    fmt::format("--ntasks={}", nodes * tasks_per_node),
                                    fmt::format("--ntasks-per-node={}", tasks_per_node),
                                    "--kill-on-bad-exit=1"};
  if (nodes * tasks_per_node > 1) words.emplace_back("--mpi=pmix");
  const auto more = container_words(container);
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Returns shell text that compiles what the run's ranks need.
std::string compile_text(const SuperviseJob& job) {
  const SuperviseCommand& run = job.command;
  LH_CHECK(run.ranks_per_node > 0, "submit", "no number of ranks of a node");
  std::vector<std::string> words =
      srun_words(run.nodes, run.ranks_per_node, job.container);
  words.insert(
      words.end(),
      {run.container_program.empty() ? job.batch.program : run.container_program,
       "compile", run.config, "--ranks-per-node", std::to_string(run.ranks_per_node)});
  for (const std::string& set : run.sets) words.insert(words.end(), {"--set", set});
  return array_of("compile", words);
}

}  // namespace

std::vector<std::string> supervise_words(const std::string& program,
                                         const SuperviseCommand& command) {
  std::vector<std::string> words = {program, "supervise", command.config};
  const auto add = [&](const char* option, const std::string& value) {
    words.insert(words.end(), {option, value});
  };
  add("--nodes", std::to_string(command.nodes));
  if (command.spares > 0) add("--spares", std::to_string(command.spares));
  if (command.ranks_per_node > 0) {
    add("--ranks-per-node", std::to_string(command.ranks_per_node));
  }
  if (!command.container.empty()) add("--container", command.container);
  for (const std::string& mount : command.container_mounts) {
    add("--container-mount", mount);
  }
  if (!command.container_program.empty()) {
    add("--container-program", command.container_program);
  }
  if (command.platform_replaces_nodes) words.emplace_back("--platform-replaces-nodes");
  if (!command.rehearse.empty()) words.push_back(command.rehearse);
  if (!command.run_dir.empty()) add("--run-dir", command.run_dir);
  add("--signal-seconds", std::to_string(command.signal_seconds));
  for (const std::string& set : command.sets) add("--set", set);
  return words;
}

std::string supervise_script(const SuperviseJob& job) {
  check_absolute(job.command.config, "the configuration");
  std::string text = head(job.batch, "trains by a configuration, supervised");
  text +=
      "# A dead node leaves the job; a spare takes its place. Without this Slurm would "
      "end\n"
      "# the whole job.\n"
      "#SBATCH --no-kill\n"
      "# Time to save before the time limit.\n";
  text +=
      directive(fmt::format("--signal=B:USR1@{}", job.batch.signal_seconds), "signal");
  text += more_options(job.batch) + kStart;
  SuperviseCommand command = job.command;
  command.signal_seconds = job.batch.signal_seconds;
  std::vector<std::string> words;
  if (command.platform_replaces_nodes) {
    text +=
        "# The platform's plug-in in srun runs this step again, on other nodes, when it "
        "fails.\n";
    words = {"srun", "--auto-resume=1", "--overlap", "--nodes=1", "--ntasks=1"};
  }
  const auto more = supervise_words(job.batch.program, command);
  words.insert(words.end(), more.begin(), more.end());
  text += array_of("supervise", words);
  if (job.compile_first) text += compile_text(job);
  // This command requeues the job and tells Slurm which nodes it is not to give again.
  const char* requeue =
      command.platform_replaces_nodes
          ? ""
          : R"sh("${supervise[@]}" ${because:+--because "$because"} --requeue)sh";
  return text + kRun + again_text(job.batch, requeue) +
         (job.compile_first ? kCompileFirst : "") + kSuperviseLoop;
}

std::string verb_script(const VerbJob& job) {
  LH_CHECK(!job.words.empty(), "submit", "no verb is named");
  std::string text = head(job.batch, "runs one verb");
  text +=
      directive(fmt::format("--signal=B:USR1@{}", job.batch.signal_seconds), "signal");
  text += more_options(job.batch) + kStart;
  std::vector<std::string> words;
  if (!job.starts_steps) {
    words = srun_words(job.batch.nodes, job.tasks_per_node, job.container);
  }
  words.push_back(job.batch.program);
  words.insert(words.end(), job.words.begin(), job.words.end());
  text += array_of("step", words);
  return text + kRun + again_text(job.batch) + kVerbEnd;
}

}  // namespace longhaul::cluster
