#include "longhaul/cluster/slurm/batch_script.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/system/terminal.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

SuperviseJob small_job() {
  SuperviseJob job;
  job.batch.name = "cpt";
  job.batch.nodes = 5;
  job.batch.log = "/runs/cpt/slurm-%j.log";
  job.batch.directory = "/fsx/ann/my work";
  job.batch.program = "/opt/longhaul/bin/longhaul";
  job.command.config = "/fsx/ann/my work/run.toml";
  job.command.nodes = 4;
  job.command.spares = 1;
  return job;
}

std::string head_of(const std::string& script) {
  return script.substr(0, script.find("\n# bash handles"));
}

TEST(BatchScript, OfARunReadsAsAPersonWouldWriteIt) {
  SuperviseJob job = small_job();
  job.batch.partition = "p4d";
  job.batch.time_limit = "2-00:00:00";
  job.batch.signal_seconds = 120;
  job.batch.after = {"12", "13"};
  job.batch.options = {"--account=lab", "-C gpu"};
  job.command.sets = {"optimizer.lr=1e-5", "run.dir=\"/runs/it's\""};
  job.command.ranks_per_node = 8;
  EXPECT_EQ(head_of(supervise_script(job)), R"(#!/bin/bash
# Written by longhaul submit: trains by a configuration, supervised.
# It may be changed, and handed to sbatch again.
#SBATCH --job-name=cpt
#SBATCH --nodes=5
#SBATCH --exclusive
#SBATCH --partition=p4d
#SBATCH --time=2-00:00:00
# Waits for these jobs; should one fail, this one is removed.
#SBATCH --dependency=afterok:12:13
#SBATCH --kill-on-invalid-dep=yes
#SBATCH "--chdir=/fsx/ann/my work"
# One log, also over requeues.
#SBATCH --output=/runs/cpt/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# A dead node leaves the job; a spare takes its place. Without this Slurm would end
# the whole job.
#SBATCH --no-kill
# Time to save before the time limit.
#SBATCH --signal=B:USR1@120
#SBATCH --account=lab
#SBATCH "-C gpu"
set -u
# Slurm's fences by a tree let some ranks leave MPI's start before others can hear them:
# with Open MPI 4.1 a few starts in a hundred crash. By a ring none does.
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
# Every step has this script's variables, also where sbatch was told to pass fewer.
export SLURM_EXPORT_ENV=ALL

supervise=(/opt/longhaul/bin/longhaul supervise '/fsx/ann/my work/run.toml' --nodes 4
  --spares 1 --ranks-per-node 8 --signal-seconds 120 --set optimizer.lr=1e-5 --set
  'run.dir="/runs/it'\''s"')
)");
}

TEST(BatchScript, WhereThePlatformReplacesNodesItRunsTheSupervisorsStepAgain) {
  SuperviseJob job = small_job();
  job.command.platform_replaces_nodes = true;
  const std::string script = supervise_script(job);
  EXPECT_HAS(script, "\nsupervise=(srun --auto-resume=1 --overlap --nodes=1 --ntasks=1");
  EXPECT_HAS(script, " --platform-replaces-nodes");
}

TEST(BatchScript, HandsTheFlagOfARehearsalToTheSupervisor) {
  SuperviseJob job = small_job();
  EXPECT_EQ(supervise_script(job).find("rehearse"), std::string::npos);
  for (const char* flag : {"--rehearse", "--no-rehearse"}) {
    job.command.rehearse = flag;
    EXPECT_HAS(supervise_script(job), std::string(" ") + flag + " ");
  }
}

TEST(BatchScript, CompilesOnTheNodesThatTrainBeforeTheRunStarts) {
  SuperviseJob job = small_job();
  EXPECT_EQ(supervise_script(job).find("compile"), std::string::npos);
  job.compile_first = true;
  EXPECT_ANY_THROW(supervise_script(job));
  job.command.ranks_per_node = 64;
  job.command.sets = {"run.steps=7"};
  const std::string script = supervise_script(job);
  EXPECT_HAS(script,
             "\ncompile=(srun --nodes=4 --ntasks=256 --ntasks-per-node=64 "
             "--kill-on-bad-exit=1\n  --mpi=pmix /opt/longhaul/bin/longhaul compile "
             "'/fsx/ann/my work/run.toml'\n  --ranks-per-node 64 --set run.steps=7)\n");
  EXPECT_LT(script.find("run \"${compile[@]}\""), script.find("run \"${supervise[@]}\""));
  job.command.container_program = "/image/longhaul";
  EXPECT_HAS(supervise_script(job), "/image/longhaul compile ");
}

TEST(BatchScript, OfAVerbStartsOneStep) {
  VerbJob job;
  job.batch = small_job().batch;
  job.batch.nodes = 4;
  job.tasks_per_node = 2;
  job.words = {"data", "build", "corpus/*.jsonl", "--out", "data/wiki"};
  const std::string script = verb_script(job);
  EXPECT_HAS(script, R"(
step=(srun --nodes=4 --ntasks=8 --ntasks-per-node=2 --kill-on-bad-exit=1 --mpi=pmix
  /opt/longhaul/bin/longhaul data build 'corpus/*.jsonl' --out data/wiki)
)");
  EXPECT_EQ(script.find("--no-kill"), std::string::npos);
  job.batch.nodes = job.tasks_per_node = 1;
  EXPECT_EQ(verb_script(job).find("--mpi"), std::string::npos);
  job.container = {"/images/longhaul.sqsh", {"/fsx/ann/my work"}, "/fsx/ann/my work"};
  EXPECT_HAS(verb_script(job), "'--container-mounts=/fsx/ann/my work:/fsx/ann/my work'");
}

TEST(BatchScript, WhatItCannotHoldSafelyIsRefused) {
  for (const char* wrong : {"a\nb", "a\"b", "a'b", "a\\b", "a#b", "$(id)", "`id`", ""}) {
    SuperviseJob job = small_job();
    job.batch.name = wrong;
    if (*wrong != '\0') {
      EXPECT_THROW(supervise_script(job), InputError) << wrong;
    }
    job = small_job();
    job.batch.log = std::string("/runs/") + wrong + (*wrong == '\0' ? "\n" : "");
    EXPECT_THROW(supervise_script(job), InputError) << wrong;
    job = small_job();
    job.batch.options = {*wrong == '\0' ? "account" : std::string("--x=") + wrong};
    EXPECT_THROW(supervise_script(job), InputError) << wrong;
  }
  SuperviseJob job = small_job();
  job.command.config = "/a/line\nbreak.toml";
  EXPECT_THROW(supervise_script(job), InputError);
  job = small_job();
  job.command.config = "run.toml";
  EXPECT_THROW(supervise_script(job), InputError);
  job = small_job();
  job.batch.after = {"12:13"};
  EXPECT_THROW(supervise_script(job), InputError);
}

TEST(BatchScript, AnyWordPassesThroughTheShell) {
  for (const char* word : {"plain", "a b", "it's", "$HOME", "`id`", "a\"b", "\\", "*",
                           "!x", "~", "", "-n", "\xc3\xa4;&|<>(){}[]?#"}) {
    const std::string said =
        run_command({"bash", "-c", "printf %s " + system::shell_word(word)}).output;
    if (std::string(word) != "-n") {
      EXPECT_EQ(said, word);
    }
  }
}

/// Runs a script as Slurm would, with a fake supervisor and a fake scontrol that notes
/// its arguments.
class RunningScript {
 public:
  /// Runs the supervisor's script or, if `verb` is true, the script of a verb, whose srun
  /// is the fake program.
  explicit RunningScript(const std::string& program, bool verb = false,
                         const std::string& requeue_does = "exit 1",
                         const std::string& scontrol_does = "kill -9 $PPID") {
    const std::string requeue =
        "if [ \"${*: -1}\" = --requeue ]; then " + requeue_does + "; fi\n";

    write_program("longhaul", requeue + program);
    write_program("srun", "exec " + (dir_ / "longhaul").string() + "\n");
    write_program("scontrol", "echo \"$@\" >> " + (dir_ / "asked").string() + "\n" +
                                  scontrol_does + "\n");
    write_program("sleep", "exec /bin/sleep 0.05\n");  // between crashes
    SuperviseJob job = small_job();
    job.batch.directory = dir_.path().string();
    job.batch.program = (dir_ / "longhaul").string();
    job.batch.signal_seconds = 7;
    VerbJob of_verb;
    of_verb.batch = job.batch;
    of_verb.words = {"train", "run.toml"};
    write_program("script", verb ? verb_script(of_verb) : supervise_script(job));
  }

  /// Returns how the script ended. `act` is shell text in which $script is the script's
  /// process.
  CommandResult run(const std::string& act = "") {
    CommandOptions options;
    options.environment = {{"SLURM_JOB_ID", "55"},
                           {"SLURM_JOB_NODELIST", "n[1-5]"},
                           {"PATH", dir_.path().string() + ":/usr/bin:/bin"}};
    return run_command({"bash", "-c",
                        "bash " + (dir_ / "script").string() + " & script=$!\n" + act +
                            "\nwait $script"},
                       options);
  }

  std::string text(const std::string& name) {
    return fs::exists(dir_ / name) ? read_text(dir_ / name) : "";
  }
  std::string path(const std::string& name) { return (dir_ / name).string(); }
  void add_program(const std::string& name, const std::string& text) {
    write_program(name, text);
  }

 private:
  void write_program(const std::string& name, const std::string& text) {
    write_file(dir_ / name, text.starts_with("#!") ? text : "#!/bin/bash\n" + text);
    fs::permissions(dir_ / name, fs::perms::owner_all);
  }
  TestDirectory dir_;
};

constexpr const char* kWaits =
    "trap 'echo got USR1; sleep 0.2; exit 75' USR1; trap 'echo got TERM; exit 75' TERM\n"
    "touch $0.ready; for i in $(seq 200); do sleep 0.05; done";
constexpr const char* kUntilReady = "until [ -e %.ready ]; do sleep 0.02; done\n";

std::string when_ready(RunningScript& script, const std::string& act) {
  std::string text = kUntilReady;
  text.replace(text.find('%'), 1, script.path("longhaul"));
  return text + act;
}

TEST(BatchScript, EndsAsTheSupervisorDoes) {
  for (const int code : {0, 1, 78, 79}) {
    RunningScript script("exit " + std::to_string(code));
    EXPECT_EQ(script.run().exit_code, code);
    EXPECT_EQ(script.text("asked"), "");
  }
}

TEST(BatchScript, RequeuesWhenTheSupervisorAsks) {
  RunningScript script("exit 75");
  const CommandResult result = script.run();
  EXPECT_EQ(script.text("asked"), "requeue 55\n");
  EXPECT_HAS(result.output, "requeue: the supervisor asks for it");
}

TEST(BatchScript, AsksAControllerThatIsAwayUntilItAnswersAndOneThatRefusesAMinuteLong) {
  const std::string away =
      "[ $(grep -c requeue $(dirname $0)/asked) -lt 20 ] && exit 1; kill -9 $PPID";
  RunningScript script("exit 75", false, "exit 1", away);
  script.run();
  const std::string asked = script.text("asked");
  EXPECT_EQ(std::ranges::count(asked, 'q'), 20) << asked;
  EXPECT_HAS(asked, "ping");
  RunningScript refused("exit 75", false, "exit 1", "[ $1 = ping ]");
  EXPECT_EQ(refused.run().exit_code, 75);
  EXPECT_EQ(refused.text("asked"),
            "requeue 55\nrequeue 55\nrequeue 55\nrequeue 55\n"
            "requeue 55\nrequeue 55\nping\n");
}

TEST(BatchScript, TheSupervisorRequeuesTheJobItselfWhereItCan) {
  RunningScript script("exit 75", false, "echo \"$@\" > $0.requeued; exit 0");
  EXPECT_EQ(script.run().exit_code, 75);
  const std::string words = script.text("longhaul.requeued");
  EXPECT_HAS(words, "supervise /fsx/ann/my work/run.toml");
  EXPECT_EQ(words.find("--because"), std::string::npos) << "the supervisor has noted it";
  EXPECT_EQ(script.text("asked"), "");
}

TEST(BatchScript, EndsForGoodWhenTheRunsRecordHasCountedEnoughRequeues) {
  RunningScript script("exit 75", false, "echo enough; exit 79");
  const CommandResult result = script.run();
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_HAS(result.output, "enough");
  EXPECT_EQ(script.text("asked"), "");
}

TEST(BatchScript, ASupervisorThatWasReplacedLeavesTheJobAlone) {
  RunningScript script("touch $0.ready; exit 77");
  const CommandResult result =
      script.run(when_ready(script, "/bin/sleep 0.3; kill -TERM $script"));
  EXPECT_HAS(result.output, "is for another node's supervisor");
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(script.text("asked"), "");
}

TEST(BatchScript, SaysFromTheSecondSupervisorOnThatOneHadTheRun) {
  RunningScript script(
      "echo \"$@\" >> $0.words; [ -e $0.lives ] && exit 0; "
      "touch $0.lives; exit 9");
  EXPECT_EQ(script.run().exit_code, 0);
  const std::string words = script.text("longhaul.words");
  const size_t second = words.find('\n') + 1;
  EXPECT_EQ(words.substr(0, second).find("--again"), std::string::npos);
  EXPECT_HAS(words.substr(second), " --again\n");
}

TEST(BatchScript, StartsACrashedSupervisorAgainAndThenRequeues) {
  RunningScript script("echo x >> $0.lives; kill -SEGV $$");
  const CommandResult result = script.run();
  EXPECT_EQ(script.text("longhaul.lives"), "x\nx\nx\nx\n");
  EXPECT_EQ(script.text("asked"), "requeue 55\n");
  EXPECT_HAS(result.output, "the supervisor ended with 139; starts again");

  RunningScript once("[ -e $0.lives ] && exit 0; touch $0.lives; kill -KILL $$");
  EXPECT_EQ(once.run().exit_code, 0);
  EXPECT_EQ(once.text("asked"), "");
}

TEST(BatchScript, ARequeueThatNoSupervisorAskedForSaysWhy) {
  const std::string notes = "echo \"$@\" > $0.requeued; exit 0";
  RunningScript crashes("kill -SEGV $$", false, notes);
  crashes.run();
  EXPECT_HAS(crashes.text("longhaul.requeued"), "--because crash --requeue");
  RunningScript ended(
      "trap : USR1; trap 'kill -KILL $$' TERM; touch $0.ready\n"
      "for i in $(seq 200); do /bin/sleep 0.05; done",
      false, notes);
  ended.run(when_ready(ended, "kill -USR1 $script; /bin/sleep 2.2; kill -TERM $script"));
  EXPECT_HAS(ended.text("longhaul.requeued"), "--because signal --requeue");
}

TEST(BatchScript, TheSignalBeforeTheLimitSavesAndRequeues) {
  RunningScript script(kWaits);
  const CommandResult result = script.run(when_ready(script, "kill -USR1 $script"));
  EXPECT_HAS(result.output, "got USR1");
  EXPECT_EQ(script.text("asked"), "requeue 55\n");
}

TEST(BatchScript, AVerbWhoseTasksWereEndedNearTheLimitRequeues) {
  // srun returns 143 if one task left with 75 and Slurm ended the other tasks for that.
  const std::string ended =
      "trap 'sleep 0.2; exit 143' USR1; trap 'exit 75' TERM; touch $0.ready\n"
      "for i in $(seq 200); do sleep 0.05; done";
  RunningScript near_limit(ended, true);
  near_limit.run(when_ready(near_limit, "kill -USR1 $script"));
  EXPECT_EQ(near_limit.text("asked"), "requeue 55\n");

  RunningScript cancelled(ended, true);
  EXPECT_EQ(cancelled.run(when_ready(cancelled, "kill -TERM $script")).exit_code, 143);
  EXPECT_EQ(cancelled.text("asked"), "");

  RunningScript failed("exit 137", true);
  EXPECT_EQ(failed.run().exit_code, 137);
  EXPECT_EQ(failed.text("asked"), "");
}

TEST(BatchScript, ACancelledJobIsNotBroughtBackToLife) {
  RunningScript script(kWaits);
  const CommandResult result = script.run(when_ready(script, "kill -TERM $script"));
  EXPECT_HAS(result.output, "got TERM");
  EXPECT_HAS(result.output, "not requeued");
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(script.text("asked"), "");

  // A machine that shuts down sends the same signal, but its Slurm job goes on.
  RunningScript shut_down(kWaits, false, "echo by itself >> $0.requeued; exit 0");
  shut_down.add_program("squeue", "echo RUNNING\n");
  EXPECT_HAS(shut_down.run(when_ready(shut_down, "kill -TERM $script")).output,
             "the job is not cancelled");
  EXPECT_EQ(shut_down.text("longhaul.requeued"), "by itself\n");

  // The job is cancelled while it saves before its time limit.
  RunningScript saving(
      "trap : USR1; trap 'exit 75' TERM; touch $0.ready\n"
      "for i in $(seq 200); do sleep 0.05; done");
  saving.run(
      when_ready(saving, "kill -USR1 $script; /bin/sleep 0.3; kill -TERM $script"));
  EXPECT_EQ(saving.text("asked"), "");
}

TEST(BatchScript, ALimitThatCameBeforeTheSaveWasDoneRequeues) {
  RunningScript script(
      "trap : USR1; trap 'exit 75' TERM; touch $0.ready\n"
      "for i in $(seq 200); do sleep 0.05; done");
  script.run(when_ready(script, "kill -USR1 $script; /bin/sleep 3; kill -TERM $script"));
  EXPECT_EQ(script.text("asked"), "requeue 55\n");
}

TEST(BatchScript, PassesShellcheck) {
  if (run_command({"sh", "-c", "command -v shellcheck"}).exit_code != 0) {
    GTEST_SKIP() << "no shellcheck here";
  }
  const TestDirectory dir;
  SuperviseJob job = small_job();
  job.command.sets = {"run.dir=\"/runs/it's $1\""};
  write_file(dir / "run.sh", supervise_script(job));
  VerbJob verb;
  verb.batch = small_job().batch;
  verb.words = {"export", "runs/cpt", "--out", "hf dir"};
  write_file(dir / "verb.sh", verb_script(verb));
  for (const char* name : {"run.sh", "verb.sh"}) {
    const CommandResult result =
        run_command({"shellcheck", "--severity=warning", (dir / name).string()});
    EXPECT_TRUE(result.ok()) << result.output;
  }
}

}  // namespace
}  // namespace longhaul::cluster
