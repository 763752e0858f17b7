#include "longhaul/cluster/process/passed_environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

using Names = std::vector<std::string>;

/// Begins each test with an empty environment, and restores the environment afterwards.
class PassedEnvironmentTest : public testing::Test {
 protected:
  void SetUp() override {
    for (char** entry = environ; *entry != nullptr; ++entry) before_.emplace_back(*entry);
    ::clearenv();
  }
  void TearDown() override {
    ::clearenv();
    for (const std::string& entry : before_) {
      const size_t equals = entry.find('=');
      ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
    }
  }

 private:
  Names before_;
};

/// Has take_variables() read this text.
void take(const std::string& text) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  take_variables(ends[0]);
  ::close(ends[0]);
}

TEST_F(PassedEnvironmentTest, AreThoseOfNetworksAndStoresAndThoseThatAreNamed) {
  for (const char* name :
       {"NCCL_DEBUG", "FI_PROVIDER", "RDMAV_FORK_SAFE", "UCX_TLS", "AWS_PROFILE",
        "SSL_CERT_FILE", "LONGHAUL_OBJECTS_PATIENCE", "HTTPS_PROXY", "MY_ONE", "MY_TWO",
        "PATH", "HOME", "XNCCL_A", "LONGHAUL_RECORD_DIR", "MY_FUNC%%"}) {
    ::setenv(name, "secret", 1);
  }
  const Names always = {"AWS_PROFILE", "FI_PROVIDER",     "LONGHAUL_OBJECTS_PATIENCE",
                        "NCCL_DEBUG",  "RDMAV_FORK_SAFE", "SSL_CERT_FILE",
                        "UCX_TLS"};
  EXPECT_EQ(passed_variables({}), always);
  const Names more = {
      "AWS_PROFILE",   "FI_PROVIDER", "HTTPS_PROXY", "LONGHAUL_OBJECTS_PATIENCE",
      "MY_ONE",        "MY_TWO",      "NCCL_DEBUG",  "RDMAV_FORK_SAFE",
      "SSL_CERT_FILE", "UCX_TLS"};
  EXPECT_EQ(passed_variables({"HTTPS_PROXY", "MY_*", "ABSENT"}), more);
  testing::internal::CaptureStdout();
  tell_passed({"A", "B"});
  tell_passed({});
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "longhaul: every rank gets the variables A, B\n");
}

TEST_F(PassedEnvironmentTest, ArriveAsTheyAreWhateverTheyHold) {
  const std::string value = "a=b;c\n\"d\" $e '";
  ::setenv("MY_ONE", value.c_str(), 1);
  ::setenv("MY_EMPTY", "", 1);
  ::setenv("MY_OTHER", "x", 1);
  const std::string text = variables_text({"MY_EMPTY", "MY_ONE", "MY_ABSENT"});
  ::clearenv();
  ::setenv("MY_EMPTY", "here already", 1);
  take(text);
  EXPECT_EQ(std::string(std::getenv("MY_ONE")), value);
  EXPECT_EQ(std::string(std::getenv("MY_EMPTY")), "");
  EXPECT_EQ(std::getenv("MY_OTHER"), nullptr);
  take("");
}

TEST_F(PassedEnvironmentTest, WhatIsNoVariableIsRefusedWithoutItsText) {
  using std::string_literals::operator""s;
  for (const std::string& text :
       {"hidden\0"s, "=hidden\0"s, "a b=hidden\0"s, "A=hidden"s}) {
    const std::string told = message_of<InputError>([&] { take(text); });
    EXPECT_HAS(told, "the variables in the input");
    EXPECT_EQ(told.find("hidden"), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace longhaul::cluster
