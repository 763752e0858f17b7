#include "longhaul/run/run_past.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/run/files.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::run {
namespace {

constexpr const char* kIdentity = "0123456789abcdef0123456789abcdef";

TEST(RunPast, ReadsWhatItWritesAndKeepsNoneApartFromStepZero) {
  const TestDirectory dir;
  EXPECT_FALSE(RunPast::read(dir.path()));
  RunPast record = RunPast::begin();
  EXPECT_NE(record.run, RunPast::begin().run);
  record.loads = 3;
  record.write(dir.path());
  EXPECT_FALSE(RunPast::read(dir.path())->newest);
  record.newest = 0;
  record.checkpoints = "/mnt/a";
  record.write(dir.path());
  const auto read = RunPast::read(dir.path());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->run, record.run);
  EXPECT_EQ(read->loads, 3);
  EXPECT_EQ(read->newest, 0);
  EXPECT_EQ(read->checkpoints, "/mnt/a");
  EXPECT_EQ(read_run_identity(dir.path()), record.run);
}

TEST(RunPast, ARunThatBeginsAnewRemembersWhatWasGivenUp) {
  const TestDirectory dir;
  RunPast first = RunPast::begin();
  first.newest = 7;
  first.loads = 3;
  const RunPast second = first.begin_anew();
  EXPECT_EQ(second.loads, 3) << "a supervisor compares the numbers";
  const RunPast third = second.begin_anew();
  EXPECT_FALSE(third.newest);
  third.write(dir.path());
  const auto read = RunPast::read(dir.path());
  EXPECT_EQ(read->given_up, (std::vector{first.run, second.run}));
  EXPECT_TRUE(read->has_given_up(first.run));
  EXPECT_FALSE(read->has_given_up(third.run));
  RunPast last = third;
  for (int i = 0; i < 100; ++i) last = last.begin_anew();
  last.write(dir.path());
  EXPECT_EQ(RunPast::read(dir.path())->given_up, last.given_up);
}

TEST(RunPast, APlaceWhoseNameIsNoUtf8IsKnownAgain) {
  const TestDirectory dir;
  const fs::path place = dir / "place\xFF";
  RunPast record = RunPast::begin();
  record.newest = 3;
  record.checkpoints = RunPast::place_of(place);
  record.write(dir.path());
  EXPECT_EQ(RunPast::read(dir.path())->checkpoints, record.checkpoints);
  EXPECT_EQ(RunPast::read(dir.path())->newest_in(place), 3);
  EXPECT_EQ(RunPast::read(dir.path())->newest_in(place / "../place\xFF"), 3);
  EXPECT_FALSE(RunPast::read(dir.path())->newest_in(dir.path()));
}

TEST(RunPast, TheNewestIsMissingWhereItIsNeitherHereNorWhereItWasWritten) {
  const TestDirectory dir;
  RunPast record = RunPast::begin();
  EXPECT_FALSE(record.misses_newest(dir / "new"));
  record.newest = 3;
  record.checkpoints = RunPast::place_of(dir / "old");
  EXPECT_TRUE(record.misses_newest(dir / "new"));
  fs::create_directories(dir / "old/step_00000003");
  EXPECT_TRUE(record.misses_newest(dir / "new")) << "it has no manifest";
  write_file(dir / "old/step_00000003" / kManifestFile, "{}");
  EXPECT_FALSE(record.misses_newest(dir / "new"));
  EXPECT_FALSE(record.misses_newest(dir / "old"));
  record.checkpoints.clear();  // an older release did not say where
  EXPECT_TRUE(record.misses_newest(dir / "new"));
  // Nothing is known of a place that does not answer, so it counts as having the
  // checkpoint.
  fs::create_symlink(dir / "loop", dir / "loop");
  EXPECT_FALSE(record.misses_newest(dir / "loop"));
}

TEST(RunPast, OneThatDoesNotSayWhoTheRunIsIsRefusedByNameAndNeverReplaced) {
  const TestDirectory dir;
  for (const char* text : {"", "{", "[]", R"({"run": 7})", R"({"run": "short"})"}) {
    write_file(dir / "run.json", text);
    const auto message = message_of<InputError>([&] { (void)RunPast::read(dir.path()); });
    EXPECT_HAS(message, (dir / "run.json").string());
    EXPECT_EQ(message,
              message_of<InputError>([&] { (void)read_run_identity(dir.path()); }));
  }
}

TEST(RunPast, ADirectoryThatDoesNotAnswerIsNotOneWithoutARecord) {
  const TestDirectory dir;
  const fs::path loop = dir / "loop";
  fs::create_symlink(loop, loop);
  EXPECT_THROW((void)RunPast::read(loop), Error);
  EXPECT_THROW((void)read_checkpoints_owner(loop), Error);
  EXPECT_FALSE(read_checkpoints_owner(dir / "absent"));
}

/// Returns the newest checkpoint that a run without a record is taken to have, by these
/// events.
std::optional<int64_t> newest_by(const std::string& events) {
  const TestDirectory dir;
  write_file(dir / "events.jsonl", events);
  const auto past = RunPast::read(dir.path());
  return past ? past->newest : std::nullopt;
}

TEST(RunPast, ARunOfAnOlderReleaseHasTheCheckpointsThatItsEventsTellOf) {
  const std::string start = R"({"event":"start","attempt":1,"step":0})"
                            "\n";
  const std::string saves = R"({"event":"checkpoint","attempt":1,"step":5})"
                            "\n"
                            R"({"event":"checkpoint","attempt":1,"step":10})"
                            "\n";
  EXPECT_FALSE(newest_by(start));
  EXPECT_EQ(newest_by(start + saves + R"({"event":"che)"), 10);
  EXPECT_EQ(newest_by(start + saves +
                      R"({"event":"rollback","to_step":5})"
                      "\n"),
            5);
  EXPECT_EQ(newest_by(start + saves +
                      R"({"event":"start","step":5})"
                      "\n"),
            5);
  EXPECT_FALSE(newest_by(start + saves +
                         R"({"event":"rollback","to_step":0})"
                         "\n"));
  EXPECT_FALSE(newest_by(start + saves + start)) << "it began anew already";
}

TEST(RunPast, ADirectoryOfCheckpointsKeepsTheNamesOfItsMirrorWhoeverWritesThere) {
  const TestDirectory dir;
  write_file(dir / "of_run.json", std::string(R"({"run": ")") + kIdentity + R"("})");
  EXPECT_EQ(read_checkpoints_marker(dir.path()),
            (CheckpointsMarker{kIdentity, 0, {}}));  // an older release wrote it
  const std::string first = new_identity();
  const std::string second = new_identity();
  mark_checkpoints(dir.path(), {kIdentity, 3, {"", first}});
  const std::string other = new_identity();
  mark_checkpoints(dir.path(), {other, 2, {first, second}});
  mark_checkpoints(dir.path(), {other, 0, {}});
  EXPECT_EQ(read_checkpoints_marker(dir.path()),
            (CheckpointsMarker{other, 3, {first, second}}));
  std::vector<std::string> many;
  for (int i = 0; i < 1500; ++i) many.push_back(new_identity());
  mark_checkpoints(dir.path(), {other, 4, many});
  const auto names = read_checkpoints_marker(dir.path())->names;
  EXPECT_EQ(names.size(), 1000U);
  EXPECT_EQ(names.back(), many.back());
  write_file(dir / "of_run.json",
             std::string(R"({"run": ")") + kIdentity + R"(", "names": ["here"]})");
  EXPECT_HAS(message_of<InputError>([&] { (void)read_checkpoints_marker(dir.path()); }),
             "names 'here' is no identity");
}

TEST(RunPast, AMarkerThatIsHalfWrittenSaysWhatToDo) {
  const TestDirectory dir;
  write_file(dir / "of_run.json", "{\"run\"");
  EXPECT_HAS(message_of<InputError>([&] { (void)read_checkpoints_marker(dir.path()); }),
             "restore the file, or remove it");
}

TEST(RunPast, TheMarkerOfADirectoryOfCheckpointsSaysWhoseItIs) {
  const TestDirectory dir;
  EXPECT_FALSE(read_checkpoints_owner(dir.path()));
  write_checkpoints_marker(dir.path(), {kIdentity, {}, {}});
  EXPECT_EQ(read_checkpoints_owner(dir.path()), kIdentity);
  EXPECT_EQ(read_text(dir / "of_run.json"),
            "{\"run\":\"" + std::string(kIdentity) + "\"}\n");
}

TEST(RunPast, ACheckpointIsAStrangersWhereItNamesAnotherRun) {
  const TestDirectory dir;
  const fs::path step = dir / "step_00000005";
  EXPECT_FALSE(is_strangers(step, kIdentity));
  const auto is_strangers_as = [&](const std::string& text) {
    fs::create_directories(step);
    write_file(step / kManifestFile, text);
    return is_strangers(step, kIdentity);
  };
  EXPECT_TRUE(is_strangers_as(R"({"run": ")" + new_identity() + R"("})"));
  EXPECT_FALSE(is_strangers(step, "")) << "nobody knows whose directory this is";
  EXPECT_FALSE(is_strangers_as(R"({"run": ")" + std::string(kIdentity) + R"("})"));
  EXPECT_FALSE(is_strangers_as("{}")) << "of an older release";
  for (const char* damaged : {"{", "[]", R"({"run": 5})"}) {
    EXPECT_FALSE(is_strangers_as(damaged)) << damaged;
  }
}

TEST(RunPast, WithoutARecordTheEventsTellWhatWasCommitted) {
  const TestDirectory dir;
  EXPECT_TRUE(RunPast::begin().knows_no_start(dir.path()));
  write_file(dir / kEventsFile, "{\"event\":\"checkpoint\",\"step\":2}\n");
  EXPECT_TRUE(RunPast::begin().knows_no_start(dir.path()));
  write_file(
      dir / kEventsFile,
      "{\"event\":\"start\",\"step\":0}\n"
      "{\"event\":\"checkpoint\",\"step\":2}\n{\"event\":\"checkpoint\",\"step\":4}\n"
      "{\"event\":\"rollback\",\"to_step\":2}\nhalf {\n"
      "{\"event\":\"checkpoint\",\"step\":6}\n");
  EXPECT_FALSE(RunPast::begin().knows_no_start(dir.path()));
  EXPECT_EQ(committed_by_events(dir.path()), (std::set<int64_t>{2, 6}));
  fs::remove(dir / kEventsFile);
  RunPast loaded = RunPast::begin();
  loaded.loads = 1;
  EXPECT_FALSE(loaded.knows_no_start(dir.path()));
}

}  // namespace
}  // namespace longhaul::run
