#include "longhaul/run/tensorboard.h"

#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::run {
namespace {

std::vector<fs::path> files_in(const fs::path& dir) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dir)) files.push_back(entry.path());
  return files;
}

TEST(TensorBoardWriter, OpensWithTheVersionRecord) {
  const TestDirectory dir;
  {
    const TensorBoardWriter writer(dir / "tb", 0);
  }
  const std::vector<fs::path> files = files_in(dir / "tb");
  ASSERT_EQ(files.size(), 1U);
  EXPECT_TRUE(files[0].filename().string().starts_with("events.out.tfevents."));
  const std::string text = read_text(files[0]);
  // Every event file begins with a length of 24, its masked CRC-32C, and field 1 as a
  // double.
  EXPECT_EQ(text.substr(0, 13),
            std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09", 13));
  EXPECT_EQ(text.substr(21, 15),
            "\x1a\x0d"
            "brain.Event:2");
  // The next record begins a session: a length of 15.
  EXPECT_EQ(text.substr(40, 8), std::string("\x0f\0\0\0\0\0\0\0", 8));
}

TEST(TensorBoardWriter, AFileOrDirectoryThatWasRemovedIsBegunAnewWithTheVersionRecord) {
  const TestDirectory dir;
  std::vector<std::string> told;
  TensorBoardWriter writer(dir / "tb", 0,
                           [&](const auto& line) { told.push_back(line); });
  const fs::path file = files_in(dir / "tb").at(0);
  const std::string head = read_text(file);
  fs::remove_all(dir / "tb");
  writer.scalar("loss", 1, 2.5);
  writer.flush();
  const std::string text = read_text(file);
  EXPECT_EQ(text.substr(0, head.size()), head);
  EXPECT_GT(text.size(), head.size());
  EXPECT_EQ(told.size(), 1U);
}

TEST(TensorBoardWriter, EachStartWritesAFileOfItsOwn) {
  const TestDirectory dir;
  {
    const TensorBoardWriter first(dir.path(), 0);
  }
  {
    const TensorBoardWriter second(dir.path(), 0);
  }
  EXPECT_EQ(files_in(dir.path()).size(), 2U);
}

TEST(TensorBoardWriter, FlushAndTheEndWriteWhatIsBuffered) {
  const TestDirectory dir;
  TensorBoardWriter writer(dir.path(), 0);
  const fs::path file = files_in(dir.path()).at(0);
  const auto head = fs::file_size(file);
  writer.scalar("loss", 1, 2.5);
  writer.flush();
  EXPECT_GT(fs::file_size(file), head);
  EXPECT_HAS(read_text(file), "loss");
  {
    TensorBoardWriter last = std::move(writer);
    last.scalar("late", 2, 1.0);
  }
  EXPECT_HAS(read_text(file), "late");
}

TEST(TensorBoardWriter, APlaceThatCannotBeMadeIsNamed) {
  const TestDirectory dir;
  write_file(dir / "tb", "a file");
  const std::string message =
      message_of<InputError>([&] { TensorBoardWriter writer(dir / "tb", 0); });
  EXPECT_HAS(message, (dir / "tb").string());
  EXPECT_HAS(message, "log.tensorboard_dir");
}

}  // namespace
}  // namespace longhaul::run
