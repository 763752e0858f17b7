#include "longhaul/system/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "longhaul/base/error.h"

namespace longhaul::system {
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

TEST(SignalWatch, NotesEverySignalThatAsksForASaveAndNamesIt) {
  for (const auto& [number, name] :
       {std::pair(SIGTERM, "SIGTERM"), std::pair(SIGUSR1, "SIGUSR1"),
        std::pair(SIGUSR2, "SIGUSR2"), std::pair(SIGHUP, "SIGHUP"),
        std::pair(SIGXCPU, "SIGXCPU")}) {
    const SignalWatch watch;
    std::raise(number);
    std::raise(number);  // the kernel repeats SIGXCPU each second
    EXPECT_EQ(watch.raised(), number);
    EXPECT_STREQ(signal_name(number), name);
  }
}

TEST(SignalWatchDeathTest, AQuitStillEndsTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        const SignalWatch watch;
        std::raise(SIGQUIT);
      },
      ::testing::KilledBySignal(SIGQUIT), "");
}

TEST(SignalWatch, NotesAHangupUnlessNohupIgnoresIt) {
  {
    const SignalWatch watch;
    std::raise(SIGHUP);
    EXPECT_EQ(watch.raised(), SIGHUP);
  }
  EXPECT_EQ(std::signal(SIGHUP, SIG_IGN), SIG_DFL);
  {
    const SignalWatch watch;
    std::raise(SIGHUP);
    EXPECT_EQ(watch.raised(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_IGN);
}

TEST(RehearsedSignal, IsNoticedAsAnyOtherAndLeavesNothing) {
  const SignalWatch watch;
  {
    RehearsedSignal rehearsed(5.0);
    EXPECT_TRUE(rehearsed.noted());
    EXPECT_EQ(raised_signal().number, 0);
    rehearsed.show();
    EXPECT_EQ(raised_signal().number, RehearsedSignal::number());
    answer_signal();
  }
  EXPECT_EQ(raised_signal().number, 0);
  EXPECT_EQ(watch.raised(), 0);
  std::raise(SIGTERM);
  EXPECT_FALSE(raised_signal().answered);
}

TEST(RehearsedSignal, WhoseAnswerCameWithoutItsShowLeavesALaterSignalUnanswered) {
  const SignalWatch watch;
  {
    // Another rank shows its signal, and all ranks answer it.
    const RehearsedSignal hidden(5.0);
    ASSERT_TRUE(hidden.noted());
    answer_signal();
    EXPECT_EQ(raised_signal().number, 0);
  }
  std::raise(SIGTERM);
  EXPECT_EQ(raised_signal().number, SIGTERM);
  EXPECT_FALSE(raised_signal().answered);
}

TEST(RehearsedSignal, HidesNoSignalThatComesMeanwhile) {
  const SignalWatch watch;
  {
    RehearsedSignal rehearsed(5.0);
    rehearsed.show();
    std::raise(SIGTERM);
    EXPECT_EQ(raised_signal().number, SIGTERM);
    answer_signal();
  }
  EXPECT_EQ(raised_signal().number, SIGTERM);
  EXPECT_TRUE(raised_signal().answered);
}

TEST(RehearsedSignal, IsNotNotedWhereNobodyWatchesOrSignalsAreBlocked) {
  EXPECT_FALSE(RehearsedSignal(0.0).noted());
  const SignalWatch watch;
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, RehearsedSignal::number());
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  {
    RehearsedSignal lost(0.01);
    EXPECT_FALSE(lost.noted());
    lost.show();
    EXPECT_EQ(raised_signal().number, 0);
  }
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
  EXPECT_EQ(raised_signal().number, 0);  // the signal came after the object had gone
}

TEST(RaisedSignal, NamesTheSignalThatASupervisorWasSent) {
  const SignalWatch watch;
  sigval cause{};
  cause.sival_int = SIGINT;
  ASSERT_EQ(::sigqueue(::getpid(), SIGUSR1, cause), 0);
  ASSERT_EQ(::sigqueue(::getpid(), SIGUSR1, cause),
            0);  // the second signal is a repetition, which ends no process
  EXPECT_EQ(watch.raised(), SIGINT);
  EXPECT_EQ(raised_signal().number, SIGINT);
  EXPECT_EQ(raised_signal().sender, 0);
  EXPECT_EQ(watch.interrupts(), 0);
}

TEST(RaisedSignal, PassesOverAValueThatIsNoSignalToEnd) {
  const SignalWatch watch;
  sigval cause{};
  cause.sival_int = SIGKILL;
  ASSERT_EQ(::sigqueue(::getpid(), SIGUSR1, cause), 0);
  EXPECT_EQ(watch.raised(), SIGUSR1);
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

TEST(SignalWatchDeathTest, ASecondInterruptSaysWhatItLeavesBehind) {
  EXPECT_EXIT(
      {
        const SignalWatch watch;
        set_last_words("newest checkpoint step 8; step 9 will be trained again");
        set_last_words("newest checkpoint step 12; steps 13 to 15 will be trained again");
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130),
      "^longhaul: ended at once: newest checkpoint step 12; steps 13 to 15 will be "
      "trained again\n$");
}

TEST(SignalWatchDeathTest, WhoEndsOthersFirstCountsInterruptsAndAThirdEndsIt) {
  EXPECT_EXIT(
      {
        SignalWatch watch;
        watch.count_interrupts();
        std::raise(SIGINT);
        std::raise(SIGINT);
        if (watch.interrupts() != 2) ::_exit(1);
        std::raise(SIGINT);
        ::_exit(2);
      },
      ::testing::ExitedWithCode(130), "");
}

TEST(LastWords, AreOneLineOfBoundedLength) {
  set_last_words("");
  EXPECT_EQ(last_words(), "");
  set_last_words(std::string(1000, 'x'));
  EXPECT_EQ(last_words(), std::string(398, 'x'));
  set_last_words("short");
  EXPECT_EQ(last_words(), "short");
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
}  // namespace longhaul::system
