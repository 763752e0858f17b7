#include "longhaul/system/reader_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

std::string work(const std::string& request) {
  if (request == "input") throw InputError("area", "bad [input]");
  if (request == "later") throw TemporaryError("area", "later");
  if (request == "die") ::raise(SIGKILL);
  if (request == "loop") {
    volatile int busy = 1;
    while (busy == 1) {
    }
  }
  if (request == "big") return std::string(20'000'000, 'b');
  return request + "!";
}

TEST(ReaderProcess, AnswersOneRequestAfterTheOther) {
  ReaderProcess process(work);
  EXPECT_EQ(process.ask("f", "one"), "one!");
  EXPECT_EQ(process.ask("f", "big").size(), 20'000'000U);
  EXPECT_EQ(process.ask("f", ""), "!");
}

TEST(ReaderProcess, ErrorsKeepTheirKindAndTheProcessGoesOn) {
  ChildLimits limits;
  limits.cpu_seconds = 1;
  ReaderProcess process(work, limits);
  EXPECT_EQ(message_of<InputError>([&] { process.ask("f", "input"); }),
            "[area] bad [input]");
  EXPECT_THROW(process.ask("f", "later"), TemporaryError);
  for (const char* const request : {"die", "loop"}) {
    const std::string message =
        message_of<InputError>([&] { process.ask("shard 7", request); });
    EXPECT_NE(message.find("shard 7: the process that read it ended"), std::string::npos)
        << message;
  }
  EXPECT_EQ(process.ask("f", "still here"), "still here!");
}

TEST(ReaderProcess, ThreadsTakeTurns) {
  ReaderProcess process(work);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string request = std::to_string(t) + " " + std::to_string(i);
        wrong[t] += process.ask("f", request) == request + "!" ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace longhaul::system
