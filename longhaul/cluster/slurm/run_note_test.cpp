#include "longhaul/cluster/slurm/run_note.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/run/run_past.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

const std::string kRun(32, 'a');
const std::string kOther(32, 'b');

/// A Slurm that keeps a job's comment, and the directory of a run.
class RunNote : public testing::Test {
 protected:
  void note(const std::string& run) { note_run(client(), "7", dir_.path(), run); }
  std::string missing() { return missing_run(client(), "7", dir_.path()); }
  void put_record(const std::string& run, int64_t loads,
                  const std::vector<std::string>& given_up = {}) {
    run::RunPast record;
    record.run = run;
    record.loads = loads;
    record.given_up = given_up;
    record.write(dir_.path());
  }

  SlurmClient client() {
    return SlurmClient(
        1, [this](const std::vector<std::string>& words, const CommandOptions&) {
          CommandResult result;
          result.exit_code = silent_ ? 1 : 0;
          if (words[1] == "show") {
            result.output = "JobId=7 JobName=x\n   Partition=batch\n" +
                            (comment_.empty() ? "" : "   Comment=" + comment_ + "\n") +
                            "   StdOut=/log\n";
          } else {
            ++updates_;
            if (!forgets_) comment_ = words[3].substr(std::string("Comment=").size());
          }
          return result;
        });
  }

  TestDirectory dir_;
  std::string comment_;
  int updates_ = 0;
  bool silent_ = false;
  bool forgets_ = false;
};

TEST_F(RunNote, ALaterLifeFindsTheRunThatItsDirectoryDoesNotShow) {
  EXPECT_EQ(missing(), "");  // no start has come so far
  note(kRun);
  EXPECT_EQ(missing(), kRun);
  put_record(kOther, 0);  // a start that was refused has left it in the empty directory
  EXPECT_EQ(missing(), kRun);
  put_record(kRun, 0);
  EXPECT_EQ(missing(), "");
  put_record(kOther, 0, {kRun});  // begun anew on purpose
  EXPECT_EQ(missing(), "");
}

TEST_F(RunNote, WhatAPersonWroteStaysAndTheSameRunIsWrittenOnce) {
  comment_ = "project 12 of team a=b";
  note(kRun);
  note(kRun);
  EXPECT_EQ(updates_, 1);
  EXPECT_TRUE(comment_.starts_with("project 12 of team a=b longhaul:"));
  EXPECT_EQ(missing(), kRun);
  note(kOther);
  EXPECT_EQ(missing(), kOther);
  EXPECT_EQ(comment_.find(kRun), std::string::npos);
}

TEST_F(RunNote, EachDirectoryOfAJobHasARunOfItsOwn) {
  note(kRun);
  const TestDirectory second;
  EXPECT_EQ(missing_run(client(), "7", second.path()), "");
}

TEST_F(RunNote, SlurmIsAskedOnlyWhereTheDirectoryShowsNoRunThatHasBegun) {
  silent_ = true;
  put_record(kRun, 1);
  EXPECT_EQ(missing(), "");
  put_record(kRun, 0);
  EXPECT_THROW(missing(), TemporaryError);
}

TEST_F(RunNote, ACommentThatDoesNotStayIsAnError) {
  forgets_ = true;
  EXPECT_THROW(note(kRun), TemporaryError);
}

}  // namespace
}  // namespace longhaul::cluster
