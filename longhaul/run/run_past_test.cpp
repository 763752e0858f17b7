#include "longhaul/run/run_past.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/base/test_files.h"

namespace longhaul {
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

/// The newest checkpoint that a run without a record is taken to have.
std::optional<int64_t> newest_by(const std::string& events) {
  const TestDirectory dir;
  write_file(dir / "events.jsonl", events);
  return RunPast::read(dir.path())->newest;
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

TEST(RunPast, TheMarkerOfADirectoryOfCheckpointsSaysWhoseItIs) {
  const TestDirectory dir;
  EXPECT_FALSE(read_checkpoints_owner(dir.path()));
  write_checkpoints_owner(dir.path(), kIdentity);
  EXPECT_EQ(read_checkpoints_owner(dir.path()), kIdentity);
  EXPECT_EQ(read_text(dir / "of_run.json"),
            "{\"run\":\"" + std::string(kIdentity) + "\"}\n");
}

}  // namespace
}  // namespace longhaul
