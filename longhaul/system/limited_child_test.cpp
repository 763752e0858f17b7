#include "longhaul/system/limited_child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

TEST(LimitedChild, TheAnswerComesBackWhole) {
  std::string answer(3'000'000, 'x');
  EXPECT_EQ(run_in_limited_child("f", [&] { return answer; }), answer);
}

TEST(LimitedChild, AnErrorKeepsItsKindAreaAndText) {
  const std::string message = message_of<InputError>([] {
    run_in_limited_child("f", []() -> std::string { throw InputError("area", "bad"); });
  });
  EXPECT_EQ(message, "[area] bad");
  EXPECT_THROW(run_in_limited_child(
                   "f", []() -> std::string { throw TemporaryError("area", "later"); }),
               TemporaryError);
}

TEST(LimitedChild, MemoryIsLimited) {
  ChildLimits limits;
  limits.memory_bytes = 64 << 20;
  const std::string message = message_of<InputError>([&] {
    run_in_limited_child(
        "f", [] { return std::string(std::vector<char>(size_t{1} << 30).data(), 1); },
        limits);
  });
  // With a sanitizer, memory that is refused ends the child instead of throwing.
  EXPECT_TRUE(message.find("more memory than the reader's limit") != std::string::npos ||
              message.find("too large") != std::string::npos)
      << message;
}

TEST(LimitedChild, ProcessorTimeIsLimited) {
  ChildLimits limits;
  limits.cpu_seconds = 1;
  const std::string message = message_of<InputError>([&] {
    run_in_limited_child(
        "file.pt",
        []() -> std::string {
          volatile int busy = 1;
          while (busy == 1) {
          }
          return {};
        },
        limits);
  });
  EXPECT_NE(message.find("file.pt"), std::string::npos) << message;
}

TEST(LimitedChild, ACrashIsAnErrorThatNamesTheFile) {
  const std::string message = message_of<InputError>([] {
    run_in_limited_child("file.pt", []() -> std::string {
      std::signal(SIGABRT, SIG_DFL);
      ::raise(SIGKILL);
      return {};
    });
  });
  EXPECT_NE(message.find("file.pt: the process that read it ended (signal 9"),
            std::string::npos)
      << message;
}

TEST(LimitedChild, AnAnswerThatIsTooLongIsRefused) {
  ChildLimits limits;
  limits.answer_bytes = 1000;
  EXPECT_THROW(run_in_limited_child(
                   "f", [] { return std::string(5'000'000, 'x'); }, limits),
               InputError);
}

TEST(LimitedChild, AChildThatLiesAboutItsEndIsRefused) {
  for (const char* const lie : {"Zwhat", "9area\ntext", "1no line"}) {
    EXPECT_THROW(run_in_limited_child("f",
                                      [&]() -> std::string {
                                        const auto size = std::string_view(lie).size();
                                        ::_exit(::write(3, lie, size) == 0 ? 1 : 0);
                                      }),
                 InputError)
        << lie;
  }
}

TEST(LimitedChild, TheChildCanWriteNoFileAndHoldsNoneOfOurs) {
  const TestDirectory dir;
  const int ours = ::open((dir / "ours").c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GT(ours, 2);
  const std::string answer = run_in_limited_child("f", [&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const int fd = ::open((dir / "made").c_str(), O_CREAT | O_WRONLY, 0600);
    const bool wrote = ::write(fd, "x", 1) == 1;
    const bool held = ours != 3 && ::write(ours, "x", 1) == 1;
    return std::string(wrote || held ? "it did" : "nothing");
  });
  ::close(ours);
  EXPECT_EQ(answer, "nothing");
}

}  // namespace
}  // namespace longhaul::system
