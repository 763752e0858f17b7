#include "longhaul/base/file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

TEST(File, ReadsAtOffsets) {
  const TestDirectory dir;
  File out = File::create(dir / "a");
  out.write("hello WORLD");
  EXPECT_EQ(out.size(), 11U);
  out.sync();
  out.close();
  EXPECT_FALSE(out.is_open());

  const File in = File::open_read(dir / "a");
  std::array<char, 5> part{};
  in.read_at(6, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(std::string_view(part.data(), 5), "WORLD");
}

TEST(File, CreateTruncatesAndAppendKeeps) {
  const TestDirectory dir;
  write_file(dir / "a", "old text");
  write_file(dir / "a", "new");
  File::open_append(dir / "a").write(" more");
  EXPECT_EQ(read_text(dir / "a"), "new more");
}

TEST(File, NewFilesAndDirectoriesHaveWhatTheUmaskLeaves) {
  const auto mode_of = [](const fs::path& path) {
    struct stat info{};
    ::stat(path.c_str(), &info);
    return info.st_mode & 0777U;
  };
  for (const mode_t mask : {0002U, 0022U, 0077U}) {
    const TestDirectory dir;
    const mode_t before = ::umask(mask);
    make_directories_durable(dir / "runs/mine");
    File::open_append(dir / "log.txt").write("line");
    write_text_atomic(dir / "status.json", "{}");
    ::umask(before);
    EXPECT_EQ(mode_of(dir / "runs"), 0777U & ~mask);
    EXPECT_EQ(mode_of(dir / "runs/mine"), 0777U & ~mask);
    EXPECT_EQ(mode_of(dir / "log.txt"), 0666U & ~mask);
    EXPECT_EQ(mode_of(dir / "status.json"), 0666U & ~mask);
  }
}

TEST(File, ADirectoryThatCannotBeMadeIsNamedWithWhatToDo) {
  const TestDirectory dir;
  write_file(dir / "file", "");
  const auto refused = [](const fs::path& path) {
    return message_of<InputError>([&] { make_directories_durable(path); });
  };
  EXPECT_HAS(refused("/proc/x"),
             "/proc/x: the directory cannot be made: No such file or directory; "
             "/proc shows what the kernel knows");
  EXPECT_HAS(refused("/proc/self/x/y"), "/proc/self/x: ");
  EXPECT_HAS(refused("/sys/kernel/x"), "; /sys/kernel shows what the kernel knows");
  EXPECT_HAS(refused(dir / "file/x"), "Not a directory; a file stands where");
  EXPECT_HAS(refused(dir / "file"), "a file stands where");
  try {
    fs::create_directories("/proc/x/y");
  } catch (const fs::filesystem_error& problem) {
    EXPECT_HAS(std::string(to_error(problem).what()), "choose a place on a disk");
  }
}

TEST(File, ReadPastTheEndNamesOffsetAndMissingBytes) {
  const TestDirectory dir;
  write_file(dir / "short", "12345");
  const File in = File::open_read(dir / "short");
  std::array<std::byte, 8> bytes{};
  const std::string message = message_of<InputError>([&] { in.read_at(3, bytes); });
  EXPECT_HAS(message, (dir / "short").string());
  EXPECT_HAS(message, "ends at byte 5, 6 more bytes expected");
}

TEST(File, AMissingFileIsNamed) {
  const std::string message =
      message_of<InputError>([] { File::open_read("/nonexistent/weights"); });
  EXPECT_HAS(message, "/nonexistent/weights: open failed: No such file or directory");
}

TEST(File, AFullDiskIsTemporary) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  File full = File::open_append("/dev/full");
  const std::string message = message_of<TemporaryError>([&] { full.write("x"); });
  EXPECT_HAS(message, "No space left on device");
  EXPECT_HAS(message, "free space");
}

TEST(File, APipeOrADeviceIsRefusedInsteadOfWaitedFor) {
  const TestDirectory dir;
  ASSERT_EQ(::mkfifo((dir / "config.json").c_str(), 0600), 0);
  for (const fs::path& path : {dir / "config.json", fs::path("/dev/zero")}) {
    const std::string words = path.string() + ": is a pipe, a socket or a device";
    EXPECT_HAS(message_of<InputError>([&] { read_text(path); }), words);
    EXPECT_HAS(message_of<InputError>([&] { MappedFile file(path); }), words);
    EXPECT_HAS(message_of<InputError>([&] { File::open_read(path); }), words);
  }
}

TEST(File, APipeThatNobodyReadsIsNotWaitedForByItsWriter) {
  const TestDirectory dir;
  ASSERT_EQ(::mkfifo((dir / "log.txt").c_str(), 0600), 0);
  const std::string message =
      message_of<InputError>([&] { File::open_append(dir / "log.txt"); });
  EXPECT_HAS(message, "log.txt");
  EXPECT_HAS(message, "a pipe that nobody reads");
}

TEST(File, AFailureOfTheStandardLibraryReadsAsOurOwn) {
  const auto told = [](std::errc code) {
    return to_error(fs::filesystem_error("cannot create directories", "/data/run",
                                         std::make_error_code(code)));
  };
  const Error full = told(std::errc::no_space_on_device);
  EXPECT_EQ(full.kind(), ErrorKind::Temporary);
  EXPECT_HAS(std::string(full.what()),
             "[file] /data/run: the directory cannot be made: No space left on device; "
             "free space");
  const Error frozen = told(std::errc::read_only_file_system);
  EXPECT_EQ(frozen.kind(), ErrorKind::Input);
  EXPECT_HAS(std::string(frozen.what()),
             "/data/run: the directory cannot be made: Read-only file system; choose a "
             "place that can be written");
}

TEST(File, MovingHandsTheDescriptorOver) {
  const TestDirectory dir;
  File first = File::create(dir / "a");
  File second = std::move(first);
  EXPECT_FALSE(first.is_open());  // NOLINT: that is what is tested
  second.write("x");
  second = File();
  EXPECT_EQ(read_text(dir / "a"), "x");
}

TEST(MappedFile, ShowsTheBytesAndAnEmptyFileIsEmpty) {
  const TestDirectory dir;
  write_file(dir / "a", "abc");
  write_file(dir / "empty", "");
  MappedFile map(dir / "a");
  EXPECT_EQ(map.text(), "abc");
  const MappedFile moved = std::move(map);
  EXPECT_EQ(moved.text(), "abc");
  EXPECT_TRUE(MappedFile(dir / "empty").bytes().empty());
}

TEST(MappedFile, ADirectoryIsRefused) {
  const TestDirectory dir;
  EXPECT_HAS(message_of<InputError>([&] { MappedFile map(dir.path()); }),
             "is a directory");
  EXPECT_HAS(message_of<InputError>([&] { read_text(dir.path()); }), "is a directory");
}

TEST(ReadText, AFileAboveTheLimitIsRefusedWithBothNumbers) {
  const TestDirectory dir;
  write_file(dir / "a", "123456");
  EXPECT_EQ(read_text(dir / "a", 6), "123456");
  EXPECT_HAS(message_of<InputError>([&] { read_text(dir / "a", 5); }),
             "6 bytes, more than the 5");
}

TEST(WriteTextAtomic, ReplacesAndLeavesNothingElse) {
  const TestDirectory dir;
  write_text_atomic(dir / "a", "one");
  write_text_atomic(dir / "a", "two");
  EXPECT_EQ(read_text(dir / "a"), "two");
  const auto files = std::distance(fs::directory_iterator(dir.path()), {});
  EXPECT_EQ(files, 1);
}

TEST(WriteTextAtomic, AReaderWithTheOldFileOpenKeepsIt) {
  const TestDirectory dir;
  write_text_atomic(dir / "a", "one");
  const MappedFile before(dir / "a");
  write_text_atomic(dir / "a", "two");
  EXPECT_EQ(before.text(), "one");
}

TEST(WriteTextAtomic, AFailedReplacementLeavesNoTemporaryFile) {
  const TestDirectory dir;
  fs::create_directory(dir / "a");
  write_file(dir / "a" / "inside", "x");
  EXPECT_HAS(message_of<InputError>([&] { write_text_atomic(dir / "a", "two"); }),
             "rename failed");
  const auto files = std::distance(fs::directory_iterator(dir.path()), {});
  EXPECT_EQ(files, 1);
}

TEST(RenameAtOnce, GivesANameOnceAndLeavesWhatStandsThere) {
  const TestDirectory dir;
  write_file(dir / "a", "first");
  write_file(dir / "b", "second");
  EXPECT_EQ(rename_at_once(dir / "a", dir / "name"), true);
  EXPECT_EQ(rename_at_once(dir / "b", dir / "name"), false);
  EXPECT_EQ(read_text(dir / "name"), "first");
  EXPECT_EQ(read_text(dir / "b"), "second");
  EXPECT_FALSE(fs::exists(dir / "a"));
  EXPECT_HAS(
      message_of<InputError>([&] { rename_at_once(dir / "absent", dir / "other"); }),
      "link failed: No such file or directory");
}

TEST(JoinInside, AcceptsNamesInsideAndRefusesAllOthers) {
  EXPECT_EQ(join_inside("/m", "a.safetensors", "hf"), fs::path("/m/a.safetensors"));
  EXPECT_EQ(join_inside("/m", "sub/a", "hf"), fs::path("/m/sub/a"));
  EXPECT_EQ(join_inside("/m", "a..b", "hf"), fs::path("/m/a..b"));
  for (const std::string& name :
       {std::string("../a"), std::string("sub/../../a"), std::string("/etc/passwd"),
        std::string(), std::string("a\0b", 3), std::string("..")}) {
    EXPECT_HAS(message_of<InputError>([&] { join_inside("/m", name, "hf"); }),
               "leaves its directory")
        << name;
  }
}

TEST(CopyFileDurable, CopiesEveryByte) {
  const TestDirectory dir;
  const std::string text = std::string(100000, 'x') + "end";
  write_file(dir / "a", text);
  copy_file_durable(dir / "a", dir / "b");
  EXPECT_EQ(read_text(dir / "b"), text);
}

TEST(PathsIn, AreWhatLiesInADirectoryThatCanBeOpened) {
  const TestDirectory dir;
  write_file(dir / "a", "");
  fs::create_directory(dir / "b");
  std::vector<fs::path> paths = paths_in(dir.path());
  std::ranges::sort(paths);
  EXPECT_EQ(paths, (std::vector{dir / "a", dir / "b"}));
  EXPECT_TRUE(paths_in(dir / "absent").empty());
  EXPECT_TRUE(paths_in(dir / "a").empty());
}

TEST(File, TheFirstLineIsNothingWhereTheFileIsAbsent) {
  const TestDirectory dir;
  write_file(dir / "a", "one\ntwo\n");
  EXPECT_EQ(first_line(dir / "a"), "one");
  EXPECT_EQ(first_line(dir / "b"), "");
}

}  // namespace
}  // namespace longhaul
