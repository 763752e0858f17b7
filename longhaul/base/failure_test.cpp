#include "longhaul/base/failure.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "longhaul/base/file.h"
#include "longhaul/base/test_files.h"

namespace longhaul {
namespace {

/// As another process would throw it.
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
  const auto other = Failure::of([] { throw std::runtime_error("odd"); });
  EXPECT_EQ(other->kind, ErrorKind::Internal);
  EXPECT_EQ(other->message, "odd");
  const auto files = Failure::of([] { fs::create_directory("/no/such/file"); });
  EXPECT_EQ(files->kind, ErrorKind::Input);
  EXPECT_NE(files->message.find("/no/such/file"), std::string::npos);
}

TEST(Failure, WhatTheSystemRefusesARunningRunMayBeGivenLater) {
  const auto kind = [](const std::function<void()>& work) {
    return Failure::once_running(*Failure::of(work)).kind;
  };
  EXPECT_EQ(kind([] { File::open_read("/no/such/file"); }), ErrorKind::Temporary);
  EXPECT_EQ(kind([] { fs::create_directory("/no/such/file"); }), ErrorKind::Temporary);
  EXPECT_EQ(kind([] { throw TemporaryError("file", "m"); }), ErrorKind::Temporary);
  // What a file holds does not change by itself, nor do settings.
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
