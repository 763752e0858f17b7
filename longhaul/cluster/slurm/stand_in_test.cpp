#include "longhaul/cluster/slurm/stand_in.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/file.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

/// Stands in with shell text as the supervisor and with a Slurm that notes what it is
/// asked, in a child process, whose streams go to the log.
class StandIn {
 public:
  int run(const std::string& supervisor, int refusals = 0, int signal = 0) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(in_child(supervisor, refusals, signal));
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }
  std::string text(const char* name) const {
    return fs::exists(dir_ / name) ? read_text(dir_ / name) : "";
  }

 private:
  int in_child(const std::string& supervisor, int refusals, int signal) {
    const SlurmClient slurm(
        1, [&](const std::vector<std::string>& words, const CommandOptions&) {
          CommandResult result;
          if (words[1] == "show") {
            result.output = "JobId=7 JobName=x\n   StdIn=/dev/null\n   StdOut=" +
                            (dir_ / "job.log").string() + "\n";
            return result;
          }
          result.exit_code = refusals-- > 0 ? 1 : 0;
          const std::string asked = text("asked");
          write_text_durable(dir_ / "asked",
                             asked + words[0] + " " + words[1] +
                                 (result.exit_code == 0 ? "\n" : " refused\n"));
          return result;
        });
    StandInOptions options;
    options.job = "7";
    options.words = {
        "bash", "-c",
        "cd " + dir_.path().string() +
            "\nif [ \"$0\" = --requeue ]; then [ -e requeues ] && echo by itself $* "
            ">> asked; exit; fi\n" +
            supervisor};
    options.raised = [&] { return fs::exists(dir_ / "ready") ? signal : 0; };
    options.log = (dir_ / "other.log").string();
    options.retry_seconds = 0.01;
    try {
      return stand_in_for_script(options, slurm);
    } catch (const std::exception&) {
      return 99;
    }
  }
  TestDirectory dir_;
};

TEST(StandIn, ARunThatIsDoneOrCanGoOnIsRequeuedAndItsLinesAreInTheJobsLog) {
  StandIn done;
  EXPECT_EQ(done.run("echo trained >&2; exit 0"), 0);
  EXPECT_EQ(done.text("asked"), "scontrol requeue\n");
  EXPECT_NE(done.text("job.log").find("trained"), std::string::npos);
  EXPECT_NE(done.text("job.log").find("requeued to end as completed"), std::string::npos);
  StandIn saved;
  EXPECT_EQ(saved.run("exit 75"), 75);
  EXPECT_EQ(saved.text("asked"), "scontrol requeue\n");
}

TEST(StandIn, TheSupervisorRequeuesTheJobWhereItCan) {
  StandIn saved;
  EXPECT_EQ(saved.run("touch requeues; exit 75"), 75);
  EXPECT_EQ(saved.text("asked"), "by itself\n");
  StandIn done;
  EXPECT_EQ(done.run("touch requeues; exit 0"), 0);
  EXPECT_EQ(done.text("asked"), "by itself --because done\n");
}

TEST(StandIn, ARunThatFailedOrWasStoppedByRequestEndsTheJob) {
  for (const int code : {1, 78, 79}) {
    StandIn failed;
    EXPECT_EQ(failed.run("exit " + std::to_string(code)), code);
    EXPECT_EQ(failed.text("asked"), "scancel 7\n");
  }
}

TEST(StandIn, ASupervisorThatCrashesIsStartedAgainAndThenRequeued) {
  StandIn once;
  EXPECT_EQ(once.run("[ -e lived ] && exit 0; touch lived; kill -KILL $$"), 0);
  EXPECT_EQ(once.text("asked"), "scontrol requeue\n");
}

TEST(StandIn, SlurmIsAskedUntilItDoesIt) {
  StandIn down;
  EXPECT_EQ(down.run("exit 75", 2), 75);
  EXPECT_EQ(down.text("asked"),
            "scontrol requeue refused\nscontrol requeue refused\nscontrol requeue\n");
}

TEST(StandIn, ACancelledOrReplacedOneAsksForNothing) {
  StandIn cancelled;
  EXPECT_EQ(cancelled.run("trap 'exit 75' TERM; touch ready; for i in $(seq 100); do "
                          "sleep 0.05; done",
                          0, SIGTERM),
            75);
  EXPECT_EQ(cancelled.text("asked"), "");
  StandIn replaced;
  EXPECT_EQ(replaced.run("exit 77"), kExitSuperseded);
  EXPECT_EQ(replaced.text("asked"), "");
}

/// A Slurm that gives these answers to squeue and sinfo, one pair after the other.
struct Answers {
  std::vector<std::pair<std::string, std::string>>
      of;  ///< state of the job, state of its host
  size_t asked = 0;
  fs::path note = {};  ///< where a cancelled job is noted

  SlurmClient client() {
    return SlurmClient(
        1, [this](const std::vector<std::string>& words, const CommandOptions&) {
          CommandResult result;
          const auto& [job, host] = of.at(std::min(asked, of.size() - 1));
          if (words[0] == "squeue") result.output = job + "|n[1-2]|n1|1:00:00|None\n";
          if (words[0] == "sinfo") result.output = "n1|" + host + "\n", ++asked;
          if (words[0] == "scontrol") result.exit_code = 1;  // a Slurm that has no log
          if (words[0] == "scancel") write_text_durable(note, "cancelled\n");
          return result;
        });
  }
};

/// Returns what `work` asks of a Slurm with these answers. Runs `work` in a child
/// process, whose streams go to the log.
std::string asked_by(
    Answers answers,
    const std::function<void(const StandInOptions&, const SlurmClient&)>& work) {
  const TestDirectory dir;
  StandInOptions options;
  options.job = "7";
  options.log = (dir / "log").string();
  options.words = {"bash", "-c", "echo $* >> " + (dir / "asked").string(), "x"};
  options.retry_seconds = 0.01;
  options.retry_limit_seconds = 0.2;
  answers.note = dir / "asked";
  const pid_t child = ::fork();
  if (child == 0) {
    work(options, answers.client());
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  return fs::exists(dir / "asked") ? read_text(dir / "asked") : "";
}

TEST(StandIn, AJobWhoseScriptsMachineIsLostIsRequeuedAndNoOtherOne) {
  const auto asked = [](Answers answers) {
    return asked_by(std::move(answers), requeue_deserted);
  };
  EXPECT_EQ(asked({{{"RUNNING", "allocated"}, {"RUNNING", "down*"}}}),
            "--requeue --because host\n");
  EXPECT_EQ(asked({{{"RUNNING", "allocated"}}}), "");
  EXPECT_EQ(asked({{{"RUNNING", "allocated"}, {"COMPLETING", "down*"}}}), "");
}

TEST(StandIn, ASupervisorOnAnotherNodeEndsTheJobOnlyWhereTheScriptsMachineIsLost) {
  const auto asked = [](const char* job, const char* host, int status) {
    return asked_by({{{job, host}}}, [&](const auto& options, const SlurmClient& slurm) {
      end_for_lost_script(options, slurm, status);
    });
  };
  EXPECT_EQ(asked("RUNNING", "down*", kExitTemporary), "--requeue\n");
  EXPECT_EQ(asked("RUNNING", "allocated*", 0), "--requeue --because done\n");
  EXPECT_EQ(asked("RUNNING", "down*", kExitSettings), "cancelled\n");
  EXPECT_EQ(asked("RUNNING", "allocated", kExitTemporary), "");
  EXPECT_EQ(asked("COMPLETING", "down*", kExitTemporary), "");
}

TEST(StandIn, StepsOfASupervisorDoNotInheritWhatIsOfItsOwnStep) {
  EXPECT_EQ(step_variables({"SLURM_JOB_ID=7", "SLURM_NTASKS=1", "SLURM_STEP_NODELIST=n2",
                            "SLURM_STEP_ID=3", "SLURM_JOB_NODELIST=n[1-4]", "PATH=/bin",
                            "PMIX_RANK=0", "SLURM_CPU_BIND=none", "SLURM_RESTART_COUNT=1",
                            "SLURM_CONF=/etc/slurm.conf"}),
            (std::vector<std::string>{"SLURM_NTASKS", "SLURM_STEP_NODELIST", "PMIX_RANK",
                                      "SLURM_CPU_BIND"}));
}

}  // namespace
}  // namespace longhaul::cluster
