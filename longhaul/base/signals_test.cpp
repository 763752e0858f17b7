#include "longhaul/base/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

TEST(SignalWatch, NotesTheFirstSignalAndLetsTheProcessLive) {
  const SignalWatch watch;
  EXPECT_EQ(watch.raised(), 0);
  std::raise(SIGUSR1);
  std::raise(SIGTERM);
  EXPECT_EQ(watch.raised(), SIGUSR1);
}

TEST(SignalWatch, ANewWatchStartsClean) {
  {
    const SignalWatch watch;
    std::raise(SIGTERM);
    EXPECT_EQ(watch.raised(), SIGTERM);
  }
  const SignalWatch watch;
  EXPECT_EQ(watch.raised(), 0);
}

TEST(RaisedSignal, NamesTheNewestAndItsSender) {
  EXPECT_EQ(raised_signal().number, 0);
  {
    const SignalWatch watch;
    ::kill(::getpid(), SIGUSR1);
    ::kill(::getpid(), SIGTERM);
    EXPECT_EQ(watch.raised(), SIGUSR1);
    EXPECT_EQ(raised_signal().number, SIGTERM);
    EXPECT_EQ(raised_signal().sender, ::getpid());
  }
  EXPECT_EQ(raised_signal().number, 0);
}

TEST(SignalWatch, TwoAtOnceAreRefused) {
  const SignalWatch watch;
  EXPECT_THROW(SignalWatch(), Error);
}

TEST(SignalWatchDeathTest, ASecondInterruptEndsTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        const SignalWatch watch;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "");
}

TEST(SignalWatchDeathTest, EndingTheWatchRestoresWhatWasBefore) {
  EXPECT_EXIT(
      {
        {
          const SignalWatch watch;
        }
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalWatchDeathTest, AnEndThatIsSettledIsNotChangedBySignals) {
  EXPECT_EXIT(
      {
        {
          const SignalWatch watch;
          ignore_signals_until_exit();
          std::raise(SIGTERM);
        }
        std::raise(SIGTERM);
        std::raise(SIGUSR1);
        ::_exit(75);
      },
      ::testing::ExitedWithCode(75), "");
}

TEST(SignalName, KnowsTheWatchedOnes) {
  EXPECT_STREQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_STREQ(signal_name(SIGINT), "SIGINT");
  EXPECT_STREQ(signal_name(SIGUSR1), "SIGUSR1");
}

}  // namespace
}  // namespace longhaul
