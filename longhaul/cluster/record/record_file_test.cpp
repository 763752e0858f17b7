#include "longhaul/cluster/record/record_file.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/record/requeue_count.h"
#include "longhaul/cluster/record/restart_record.h"
#include "tests/support/checked_node.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

using Names = std::vector<std::string>;

TEST(RecordFile, AnAbsentFileIsEmptyAndADamagedOneIsNamedWithWhatToDo) {
  const TestDirectory dir;
  const RecordFile file(dir / "control/names.json", "list of names");
  EXPECT_EQ(file.read<Names>(), Names{});
  file.replace(Names{"n1"});
  EXPECT_EQ(file.read<Names>(), Names{"n1"});
  write_file(dir / "control/names.json", R"({"n1": 1})");
  const std::string problem = message_of<InputError>([&] { file.read<Names>(); });
  EXPECT_HAS(problem, (dir / "control/names.json").string() + ": is no list of names (");
  EXPECT_HAS(problem, "); remove it");
  write_file(dir / "control/names.json", "[\n\"n1\",\n]");
  const std::string cut = message_of<InputError>([&] { file.read<Names>(); });
  EXPECT_HAS(cut, (dir / "control/names.json").string() + ": not valid JSON");
  EXPECT_HAS(cut, "at line 3, column 1");
  EXPECT_HAS(cut, "; remove it");
}

TEST(RecordFile, ARecordCountsForItsOwnJobAlone) {
  const TestDirectory dir;
  const RecordFile file(dir / "count.json", "count");
  EXPECT_FALSE(file.read_of<Json>("7"));
  file.replace({{"job", "7"}, {"count", 3}});
  EXPECT_EQ(file.read_of<Json>("7").value().at("count"), 3);
  EXPECT_FALSE(file.read_of<Json>("8"));
  EXPECT_FALSE(file.read_of<Json>("")) << "a person has started the run";
  write_file(dir / "count.json", "{}");
  EXPECT_THROW(file.read_of<Json>("7"), InputError);
}

TEST(RecordFile, ReplacingLeavesNoOtherFileBehind) {
  const TestDirectory dir;
  const RecordFile file(dir / "names.json", "list of names");
  file.replace(Names{"n1"});
  file.replace(Names{"n2"}, 1);
  EXPECT_EQ(read_text(dir / "names.json"), "[\n \"n2\"\n]\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);
}

TEST(RecordFile, TryRecordWarnsOfTheProblemAndItsConsequence) {
  const TestDirectory dir;
  system::Logger log = system::Logger::to_file(dir / "log.txt");
  EXPECT_TRUE(try_record(log, "unseen", [] {}));
  EXPECT_FALSE(
      try_record(log, "it goes on", [] { throw InputError("cluster", "damaged"); }));
  const std::string said = read_text(dir / "log.txt");
  EXPECT_HAS(said, "damaged; it goes on");
  EXPECT_EQ(said.find("unseen"), std::string::npos);
}

/// These files have the form that supervisors wrote before there was a RecordFile.
TEST(RecordsOfOlderSupervisors, AreStillRead) {
  const TestDirectory dir;
  fs::create_directories(dir / "control");
  system::Logger log;
  write_file(dir / "control/restarts.json",
             R"({"before":{"kind":"hang","node":"n1","step":5,"temporary":false},)"
             R"("furthest":6,"job":"7","on_node":2,"restarts":3,"same":2,)"
             R"("without_progress":1})");
  const RestartCounts counts = read_restarts(dir.path(), "7", log);
  EXPECT_EQ(counts.restarts, 3);
  EXPECT_EQ(counts.same, 2);
  EXPECT_EQ(counts.without_progress, 1);
  EXPECT_EQ(counts.furthest, 6);
  EXPECT_EQ(counts.on_node, 2);
  ASSERT_TRUE(counts.before);
  EXPECT_EQ(counts.before->kind, FaultKind::Hang);
  EXPECT_EQ(counts.before->node, "n1");
  EXPECT_EQ(counts.before->step, 5);

  write_file(dir / "control/requeues.json",
             R"({"checkpoint":10,"in_vain":4,"job":"7","note":"signal","unmended":0})");
  EXPECT_EQ(requeues_in_vain(dir.path(), "7", 10), 4);
  // This is the fifth requeue in vain. The note says that a signal was the reason, and
  // such a requeue waits 120 s.
  EXPECT_EQ(count_requeue(dir.path(), "7", 10).wait_seconds, 120.0);

  write_file(
      dir / "excluded_nodes.json",
      "[\n {\n  \"cause\": \"sick\",\n  \"kind\": \"health\",\n  \"node\": \"n2\",\n"
      "  \"since\": 1000.0\n }\n]\n");
  write_file(dir / "control/readmitted_nodes.json", R"([["n3","silence"]])");
  Exclusions out(dir.path());
  EXPECT_EQ(out.testable(1000.0), Names{"n2"});
  EXPECT_TRUE(out.add("n3", ExclusionKind::Silence, "lost", 1000.0, log));
  EXPECT_EQ(out.testable(1000.0), Names{"n2"}) << "n3 was put in again before";
  EXPECT_EQ(out.readmit({report_of("n2", true)}, 1000.0, log).size(), 1U);
  EXPECT_EQ(read_text(dir / "control/readmitted_nodes.json"),
            R"([["n2","health"],["n3","silence"]])");
}

}  // namespace
}  // namespace longhaul::cluster
