#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/arguments/argument_paths.h"
#include "apps/inputs/data_places.h"
#include "apps/inputs/run_inputs.h"
#include "apps/new_file.h"
#include "apps/program.h"
#include "apps/start/container_arguments.h"
#include "apps/verbs.h"
#include "apps/verbs/auto_layout.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/foreign_forms.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/cluster/slurm/batch_script.h"
#include "longhaul/cluster/slurm/job.h"
#include "longhaul/config/load.h"
#include "longhaul/families/adapter.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/run/files.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

struct SubmitCommand {
  std::vector<std::string> words;  // a configuration, or a verb and its arguments
  std::vector<std::string> after;
  std::string hardware;  // machine of --hardware; empty: another place names it
  cluster::BatchJob batch;
  cluster::SuperviseCommand run;
  bool dry_run = false;
  bool compile_first = false;

  // For these two numbers 0 means that the user has not given a value.
  SubmitCommand() { batch.signal_seconds = run.nodes = 0; }
};

/// The time for a save if none was measured; it is enough for most models.
constexpr int kSignalSeconds = 300;
/// The time before the limit allows for so many saves. A save that has just begun when
/// the signal comes is waited for, and one more follows. The third allows for a file
/// system that is busier than before.
constexpr double kSavesWithinSignal = 3;
/// Seconds that are added for the step under way and for the ranks' vote. Slurm may also
/// send the signal up to a minute early. KillWait, the time between the limit and
/// SIGKILL, is not counted on.
constexpr double kSignalMargin = 60;
constexpr double kMostSignalSeconds = 3600;

/// Returns the longest save in the run's events, in seconds.
std::optional<double> measured_save(const fs::path& run_dir) {
  std::error_code absent;
  if (!fs::exists(run_dir / run::kEventsFile, absent)) return std::nullopt;
  monitor::RunFiles run(run_dir);
  run.refresh();
  std::optional<double> longest;
  for (const monitor::Event& event : run.events()) {
    if (event.kind != run::CheckpointEvent::kKind) continue;
    longest = std::max(longest.value_or(0.0), event.as<run::CheckpointEvent>().seconds);
  }
  return longest;
}

/// How long before the time limit Slurm tells the run to save, and why so long.
struct SignalPlan {
  int seconds = kSignalSeconds;
  std::string why = "no save was measured yet";
};

SignalPlan plan_signal(const SubmitCommand& command, const fs::path& run_dir) {
  SignalPlan plan;
  if (command.batch.signal_seconds > 0) {
    plan = {command.batch.signal_seconds, "as --signal-seconds says"};
  } else if (const auto save = run_dir.empty() ? std::nullopt : measured_save(run_dir)) {
    const double wanted =
        std::min(kMostSignalSeconds, *save * kSavesWithinSignal + kSignalMargin);
    plan.seconds = std::max(kSignalSeconds, static_cast<int>(std::ceil(wanted)));
    plan.why = fmt::format(
        "the longest save so far took {:.1f} s; this is {:.0f} times that and {:.0f} s "
        "more, at least {} s",
        *save, kSavesWithinSignal, kSignalMargin, kSignalSeconds);
  }
  if (command.batch.time_limit.empty()) return plan;
  const double limit = cluster::time_limit_seconds(command.batch.time_limit);
  if (limit < 2.0 * plan.seconds) {
    fail_input("submit",
               "--time {} is {:.0f} s, of which the last {} s are for the save before "
               "the limit ({}); give more time, or fewer seconds with --signal-seconds",
               command.batch.time_limit, limit, plan.seconds, plan.why);
  }
  return plan;
}

std::string absolute_text(const fs::path& path) {
  return fs::absolute(path).lexically_normal().string();
}

/// Returns a name that Slurm accepts for the job, made from a file's or a verb's name.
std::string tame(const std::string& name) {
  return name.empty() || name == "." ? "longhaul" : plain_characters(name);
}

/// Returns the path of the log for Slurm, which replaces %j by the number of the job.
/// Each other % is doubled.
std::string log_path(const fs::path& dir, const std::string& name) {
  std::string text;
  for (const char c : absolute_text(dir / name))
    text += c == '%' ? "%%" : std::string(1, c);
  return text + "-%j.log";
}

cluster::BatchJob batch_job(const SubmitCommand& command) {
  cluster::BatchJob job = command.batch;
  job.directory = fs::current_path().string();
  for (const std::string& jobs : command.after) {
    for (const std::string_view some : split(jobs, ',')) {
      for (const std::string_view id : split(some, ':')) job.after.emplace_back(id);
    }
  }
  job.program = this_program();
  if (!job.time_limit.empty()) {
    try {
      (void)cluster::time_limit_seconds(job.time_limit);
    } catch (const InputError&) {
      fail_input("submit",
                 "--time {}: is no time limit of Slurm; write 30 (minutes), 8:00:00 or "
                 "2-0 (days and hours)",
                 job.time_limit);
    }
  }
  return job;
}

struct Prepared {
  std::string script;
  fs::path run_dir;  // the directory of a supervised run, which holds the script
  std::string log;
  std::string what;
  std::string layout;  // line about the layout of parallel.auto; empty: none
  SignalPlan signal;
};

Prepared prepare_run(const SubmitCommand& command) {
  if (command.words.size() != 1) {
    fail_input("submit",
               "'{}' follows the configuration {}; a verb stands behind --, as in: "
               "longhaul submit -- {}",
               command.words[1], command.words[0], "data build ...");
  }
  if (command.run.nodes == 0) {
    throw InputError("submit",
                     "--nodes is missing; say how many nodes train, such as --nodes 2");
  }
  cluster::SuperviseCommand supervised = command.run;
  const auto chosen = add_auto_layout(
      load_run_config(command.words[0], command.run.sets).config,
      {command.hardware, command.run.nodes, 0, command.run.ranks_per_node},
      supervised.sets);
  // The ranks of a node are known here only if they are told, or with the machine.
  if (chosen) supervised.ranks_per_node = static_cast<int>(chosen->node_ranks);
  const LoadedConfig loaded = load_with_places(command.words[0], supervised.sets);
  for (const std::string& warning : loaded.warnings) {
    say_warning(warning);
  }
  // Errors that would end the run's start are reported here, before the job waits for
  // days in the queue.
  const RunConfig& config = loaded.config;
  checkpoint::refuse_foreign_start(config);
  if (fs::exists(config.model.config)) {
    check_first_weights(config, load_run_model(config));
  }
  Prepared prepared;
  if (chosen) prepared.layout = chosen->text;
  prepared.run_dir = absolute_text(loaded.config.run.dir);
  cluster::SuperviseJob job;
  job.batch = batch_job(command);
  job.batch.name = command.batch.name.empty() ? tame(prepared.run_dir.filename().string())
                                              : command.batch.name;
  job.batch.nodes = command.run.nodes + command.run.spares;
  job.batch.log = log_path(prepared.run_dir, run::kSlurmLog);
  prepared.signal = plan_signal(command, prepared.run_dir);
  job.batch.signal_seconds = prepared.signal.seconds;
  job.command = std::move(supervised);
  job.command.config = absolute_text(command.words[0]);
  job.command.run_dir = absolute_text(loaded.config.run.dir);
  // Reports at once a path that cannot be mounted.
  job.container = container_of_run(job.command, config);
  job.compile_first = command.compile_first;
  if (job.compile_first && job.command.ranks_per_node == 0) {
    throw InputError("submit",
                     "--compile-first needs --ranks-per-node, the ranks for which it "
                     "compiles");
  }
  prepared.script = cluster::supervise_script(job);
  prepared.log = absolute_text(prepared.run_dir / run::kSlurmLog);
  prepared.what = counted(command.run.nodes, "node") +
                  (command.run.nodes == 1 ? " trains" : " train");
  if (command.run.spares > 0) {
    prepared.what +=
        fmt::format(", {}", command.run.spares == 1
                                ? "1 waits as a spare"
                                : fmt::format("{} wait as spares", command.run.spares));
  }
  return prepared;
}

Prepared prepare_verb(const SubmitCommand& command) {
  // Errors in the words of the verb are reported before the job waits for days in the
  // queue.
  if (const std::string problem = problem_of_outputs(command.words); !problem.empty()) {
    throw InputError("submit", problem);
  }
  if (command.run.spares > 0 || command.run.platform_replaces_nodes ||
      !command.hardware.empty() || !command.run.sets.empty() ||
      !command.run.rehearse.empty() || command.compile_first) {
    throw InputError(
        "submit",
        "--spares, --auto-resume, --hardware, --rehearse, --compile-first and --set "
        "before -- "
        "are for a run, not for a verb; write the verb's arguments behind the verb");
  }
  cluster::VerbJob job;
  job.batch = batch_job(command);
  std::string name = command.words[0];
  if (name == "data" && command.words.size() > 1) name += "-" + command.words[1];
  job.batch.name = command.batch.name.empty() ? tame(name) : command.batch.name;
  job.batch.nodes = std::max(1, command.run.nodes);
  job.batch.log = log_path(fs::current_path(), job.batch.name);
  job.batch.signal_seconds = plan_signal(command, {}).seconds;
  job.words = command.words;
  job.tasks_per_node = std::max(1, command.run.ranks_per_node);
  job.starts_steps = command.words[0] == "drill";
  job.container = container_of_verb(command.run, command.words);
  if (!command.run.container_program.empty()) {
    job.batch.program = command.run.container_program;
  }
  Prepared prepared;
  prepared.script = cluster::verb_script(job);
  prepared.log = absolute_text(fs::current_path() / job.batch.name);
  prepared.what = fmt::format("longhaul {} on {}", command.words[0],
                              counted(job.batch.nodes, "node"));
  return prepared;
}

/// Makes a temporary file with the script, which sbatch reads once.
ScratchPath passing_file(std::string_view script) {
  const char* const wanted = std::getenv("TMPDIR");
  const fs::path dir = wanted != nullptr && *wanted != '\0' ? wanted : "/tmp";
  std::string name = (dir / "longhaul-submit-XXXXXX").string();
  const int fd = ::mkstemp(name.data());
  if (fd < 0) {
    throw TemporaryError(
        "submit", fmt::format("{}: no file can be made there for the script: {}; make "
                              "room, or set TMPDIR to a directory that can be written",
                              dir.string(), std::strerror(errno)));
  }
  ::close(fd);
  write_text_durable(name, script);
  return ScratchPath(name);
}

/// Hands the script to Slurm and returns the job's number.
std::string submitted(const Prepared& prepared, bool is_verb) {
  const cluster::SlurmClient slurm(60);
  try {
    if (is_verb) return slurm.submit(passing_file(prepared.script).path().string());
    make_setting_directory("run.dir", prepared.run_dir);
    const fs::path script = prepared.run_dir / run::kBatchScriptFile;
    write_text_atomic(script, prepared.script);
    return slurm.submit(script.string());
  } catch (const TemporaryError& error) {
    throw TemporaryError("submit", error.message() +
                                       "; with --dry-run the script is printed and Slurm "
                                       "is not asked");
  }
}

void submit(const SubmitCommand& command, bool is_verb) {
  const Prepared prepared = is_verb ? prepare_verb(command) : prepare_run(command);
  if (command.dry_run) {
    if (!prepared.layout.empty()) fmt::print(stderr, "longhaul: {}\n", prepared.layout);
    fmt::print("{}", prepared.script);
    return;
  }
  cluster::require_program("sbatch", "submit",
                           "submit from a machine of the Slurm cluster; --dry-run prints "
                           "the script, and longhaul launch trains without Slurm");
  const std::string id = submitted(prepared, is_verb);
  fmt::print("job {}: {}\nlog: {}-{}.log\n", id, prepared.what, prepared.log, id);
  if (!prepared.layout.empty()) fmt::print("{}\n", prepared.layout);
  if (!is_verb) {
    fmt::print("saves: {} s before the time limit ({})\n", prepared.signal.seconds,
               prepared.signal.why);
    fmt::print("script: {0}/{1}\nwatch: longhaul watch {0}\n",
               system::shell_word(prepared.run_dir.string()), run::kBatchScriptFile);
  }
}

void add_options(CLI::App& verb, SubmitCommand& command) {
  verb.add_option(
      "config", command.words,
      "configuration (TOML) of a run; or, behind --, a verb and its arguments");
  verb.add_option("--nodes", command.run.nodes,
                  "number of nodes that train; for a verb, 1 by default")
      ->check(CLI::Range(1, 65536));
  verb.add_option(
          "--spares", command.run.spares,
          "number of further nodes, which wait to take the place of a failed node")
      ->check(CLI::Range(0, 65536));
  verb.add_option("--ranks-per-node", command.run.ranks_per_node,
                  "ranks on each node; by default one for each accelerator, else one for "
                  "each NUMA node; for a verb, 1")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--hardware,--gpu", command.hardware,
                  "with parallel.auto: the machine that the layout is chosen for, as "
                  "longhaul plan takes it");
  verb.add_option("--partition", command.batch.partition, "Slurm's partition");
  verb.add_option("--time", command.batch.time_limit,
                  "time limit, such as 8:00:00 or 2-0; the run saves before the limit, "
                  "and the job goes back to the queue");
  verb.add_option("--signal-seconds", command.batch.signal_seconds,
                  "seconds before the time limit at which the run saves; by default 300, "
                  "or three times the run's longest save plus 60 where that is more")
      ->check(CLI::Range(1, 86400));
  add_container_options(verb, command.run);
  verb.add_option("--after", command.after,
                  "start only after this job has succeeded; repeatable")
      ->allow_extra_args(false);
  verb.add_option("--name", command.batch.name,
                  "job's name in the queue; by default the run's or the verb's name");
  verb.add_option("--slurm", command.batch.options,
                  "another option of sbatch, such as --slurm=--account=lab; repeatable")
      ->allow_extra_args(false);
  add_set_option(verb, command.run.sets);
  add_rehearse_flags(verb, command.run.rehearse);
  verb.add_flag("--auto-resume", command.run.platform_replaces_nodes,
                "the platform replaces failed nodes (SageMaker HyperPod)");
  verb.add_flag("--compile-first", command.compile_first,
                "the job first compiles what the run's steps need (longhaul compile), on "
                "the nodes that train");
  verb.add_flag("--dry-run", command.dry_run, "print the script and submit nothing");
}

}  // namespace

void add_submit(CLI::App& program, Outcome&) {
  const auto command = std::make_shared<SubmitCommand>();
  CLI::App* verb = program.add_subcommand(
      "submit",
      "Writes a batch script for Slurm and submits it: a supervised run, or a verb");
  add_options(*verb, *command);
  verb->footer(
      "Examples:\n"
      "  longhaul submit run.toml --nodes 16 --spares 1 --time 2-00:00:00\n"
      "  longhaul submit run.toml --nodes 16 --dry-run > run.sbatch\n"
      "  longhaul submit --nodes 4 --name tokenize -- data build 'corpus/*.jsonl.gz' "
      "--tokenizer models/Llama-3-8B --out data/wiki\n"
      "  longhaul submit run.toml --nodes 16 --after 4711\n"
      "  longhaul submit --after 4712 -- export runs/cpt --out hf\n"
      "The configuration is checked before anything is submitted. longhaul asks Slurm "
      "for no accelerators unless --slurm says so, such as --slurm=--gpus-per-node=8.");
  verb->callback([command, &program] {
    if (command->words.empty()) {
      fail_input("submit",
                 "name a configuration, or a verb behind --; see longhaul submit --help");
    }
    const auto verbs = program.get_subcommands({});
    const bool is_verb = std::ranges::any_of(verbs, [&](const CLI::App* known) {
      return known->get_name() == command->words[0];
    });
    submit(*command, is_verb);
  });
}

}  // namespace longhaul::apps
