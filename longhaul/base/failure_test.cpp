#include "longhaul/base/failure.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

#include "longhaul/base/file.h"
#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

/// Throws a failure as another process would throw it.
void send(const std::function<void()>& work) {
  if (const auto failure = Failure::from_text(Failure::to_text(Failure::of(work)))) {
    failure->raise();
  }
}

TEST(Failure, EveryKindComesOutAsTheTypeThatWasThrown) {
  EXPECT_NO_THROW(send([] {}));
  EXPECT_THROW(send([] { throw ConfigError("a", "m"); }), ConfigError);
  EXPECT_THROW(send([] { throw InputError("a", "m"); }), InputError);
  EXPECT_THROW(send([] { throw TemporaryError("a", "m"); }), TemporaryError);
  try {
    send([] { throw Error(ErrorKind::Internal, "a", "m"); });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Internal);
    EXPECT_EQ(error.area(), "a");
    EXPECT_STREQ(error.what(), "[a] m");
  }
}

TEST(Failure, AnyBytesOfAMessageSurvive) {
  const std::string bytes("[x] line\nline \xFF\x00 end", 19);
  const auto failure = Failure::from_text(
      Failure::to_text(Failure::of([&] { throw InputError("", bytes); })));
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->area, "");
  EXPECT_EQ(failure->message, bytes.substr(0, bytes.find('\0')));  // what() ends there
}

TEST(Failure, OtherExceptionsAreNamed) {
  const auto memory = Failure::of([] { throw std::bad_alloc(); });
  EXPECT_EQ(memory->area, "memory");
  EXPECT_EQ(memory->kind, ErrorKind::Temporary);
  const auto other = Failure::of([] { throw std::runtime_error("odd"); });
  EXPECT_EQ(other->kind, ErrorKind::Internal);
  EXPECT_NE(other->message.find("odd"), std::string::npos);
  EXPECT_NE(other->message.find("please report it"), std::string::npos);
  const auto files = Failure::of([] { fs::create_directory("/no/such/file"); });
  EXPECT_EQ(files->kind, ErrorKind::Input);
  EXPECT_NE(files->message.find("/no/such/file"), std::string::npos);
}

TEST(ToError, AThreadThatCannotBeHadIsTemporaryAndNamesTheLimits) {
  const Error error =
      to_error(std::system_error(EAGAIN, std::generic_category(), "thread constructor"));
  EXPECT_EQ(error.exit_code(), 75);
  EXPECT_NE(error.message().find("no thread"), std::string::npos) << error.what();
  EXPECT_NE(error.message().find("/proc/sys/kernel/threads-max is "), std::string::npos)
      << error.what();
}

TEST(ToError, LibTorchesMemoryIsTemporaryAndItsStackIsLeftOut) {
  const Error error = to_error(std::runtime_error(
      "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate "
      "memory: you tried to allocate 8 bytes.\nException raised from alloc_cpu at x"));
  EXPECT_EQ(error.exit_code(), 75);
  EXPECT_EQ(error.area(), "memory");
  EXPECT_NE(error.message().find("tried to allocate 8 bytes"), std::string::npos);
  EXPECT_EQ(error.message().find("Exception raised"), std::string::npos);
}

TEST(ToError, AGpuThatIsLostIsTemporaryAndOneThatOurKernelBrokeIsNot) {
  const auto of_cuda = [](const std::string& said) {
    return to_error(
        std::runtime_error("CUDA error: " + said +
                           "\nSearch for `cudaError' in https://docs.nvidia.com\n"
                           "CUDA kernel errors might be asynchronously reported"));
  };
  const Error lost = of_cuda("uncorrectable ECC error encountered");
  EXPECT_EQ(lost.exit_code(), 75);
  EXPECT_EQ(lost.area(), "device");
  EXPECT_HAS(lost.message(),
             "GPU is lost (CUDA error: uncorrectable ECC error encountered); look at");
  EXPECT_EQ(of_cuda("unknown error").exit_code(), 75);
  EXPECT_EQ(of_cuda("an illegal memory access was encountered").exit_code(), 1);
  EXPECT_EQ(to_error(std::runtime_error("unknown error")).exit_code(), 1);
}

TEST(ToError, WhatAKernelInPythonRaisesIsNoFaultOfTheProgramAndIsNotRetried) {
  const Error error = to_error(std::runtime_error(
      "RuntimeError: the compilation of aten::mul failed: no space\n\nAt:\n  "
      "kernels.py(5): kernel\n"));
  EXPECT_EQ(error.kind(), ErrorKind::Config);
  EXPECT_EQ(std::string(error.what()),
            "[device] the device's backend failed: RuntimeError: the compilation of "
            "aten::mul failed: no space\nCheckpoints are untouched");
}

TEST(ToError, AFullOutputIsTemporary) {
  const Error error = to_error(
      std::system_error(ENOSPC, std::generic_category(), "cannot write to file"));
  EXPECT_EQ(error.exit_code(), 75);
}

TEST(ToError, WhatALibraryThrowsBesidesIsAFaultOfTheProgram) {
  const Error error = to_error(std::out_of_range("vector::_M_range_check"));
  EXPECT_EQ(error.exit_code(), 1);
  EXPECT_EQ(error.area(), "bug");
}

TEST(Failure, WhatTheSystemRefusesARunningRunMayBeGivenLater) {
  const auto kind = [](const std::function<void()>& work) {
    return Failure::once_running(*Failure::of(work)).kind;
  };
  EXPECT_EQ(kind([] { File::open_read("/no/such/file"); }), ErrorKind::Temporary);
  EXPECT_EQ(kind([] { fs::create_directory("/no/such/file"); }), ErrorKind::Temporary);
  EXPECT_EQ(kind([] { throw TemporaryError("file", "m"); }), ErrorKind::Temporary);
  // The content of a file and a setting do not change by themselves, so no retry can
  // help.
  EXPECT_EQ(kind([] { throw InputError("data", "m"); }), ErrorKind::Input);
  EXPECT_EQ(kind([] { throw ConfigError("file", "m"); }), ErrorKind::Config);
  EXPECT_EQ(kind([] { throw std::runtime_error("odd"); }), ErrorKind::Internal);
}

TEST(Failure, TextThatIsNoFailureIsRefused) {
  for (const char* const text : {"4area\nmessage", "/area\nmessage", "Aanswer\n", "1area",
                                 "\n", "x", "{\"kind\": 1}\n"}) {
    EXPECT_THROW(Failure::from_text(text), InputError) << text;
  }
}

TEST(Reply, GivesTheAnswerOrThrowsTheFailure) {
  EXPECT_EQ(open_reply(reply_of([] { return std::string("1a\nb"); })), "1a\nb");
  EXPECT_EQ(open_reply(reply_of([] { return std::string(); })), "");
  EXPECT_EQ(message_of<TemporaryError>([] {
              open_reply(reply_of(
                  []() -> std::string { throw TemporaryError("area", "later"); }));
            }),
            "[area] later");
  EXPECT_THROW(open_reply(""), InputError);
  EXPECT_THROW(open_reply("Zanswer"), InputError);
}

}  // namespace
}  // namespace longhaul
