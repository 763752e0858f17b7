#include "longhaul/system/start_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "longhaul/system/signals.h"

namespace longhaul::system {
namespace {

void say(int signal) { std::fprintf(stderr, "stopped by %s\n", signal_name(signal)); }

void sleep_for(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(StartWatchDeathTest, ASignalEndsABusyStartAfterTheGrace) {
  EXPECT_EXIT(
      {
        const SignalWatch signals;
        const StartWatch start(75, 0.2, say);
        std::raise(SIGTERM);
        sleep_for(20'000);
        ::_exit(1);
      },
      testing::ExitedWithCode(75), "stopped by SIGTERM");
}

TEST(StartWatchDeathTest, WhoIsThroughInTimeIsLeftAlone) {
  EXPECT_EXIT(
      {
        const SignalWatch signals;
        {
          const StartWatch start(75, 0.3, say);
          std::raise(SIGTERM);
          sleep_for(100);
        }
        sleep_for(500);
        ::_exit(raised_signal().number == SIGTERM ? 3 : 4);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace longhaul::system
