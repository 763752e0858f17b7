#include "longhaul/train/control_files.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <vector>

#include "longhaul/comm/backend.h"
#include "longhaul/system/signals.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::train {
namespace {

struct Control {
  TestDirectory dir;
  std::vector<std::string> told;
  std::shared_ptr<comm::Communicator> world = comm::self_world();
  ControlFiles files{dir.path(), *world, [this](const char* f) { told.emplace_back(f); }};
  void touch(const char* name) const { write_file(dir / name, ""); }
};

void until_the_next_look() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
}

TEST(ControlFiles, StopAndSaveAreTakenAwayAndActOnce) {
  Control control;
  control.touch("STOP");
  control.touch("SAVE");
  const Requests first = control.files.ask();
  EXPECT_TRUE(first.stop && first.save && first.ends());
  EXPECT_FALSE(fs::exists(control.dir / "STOP"));
  EXPECT_FALSE(fs::exists(control.dir / "SAVE"));
  const Requests second = control.files.ask();
  EXPECT_TRUE(second.stop) << "who was asked to stop stops";
  EXPECT_FALSE(second.save);
  EXPECT_EQ(control.told, (std::vector<std::string>{"STOP", "SAVE"}));
}

TEST(ControlFiles, WhetherTheRunMustEndTakesNothingFromWhoAsksLater) {
  Control control;
  control.touch("SAVE");
  EXPECT_FALSE(control.files.must_end());
  control.touch("STOP");
  until_the_next_look();
  EXPECT_TRUE(control.files.must_end());
  const Requests later = control.files.ask();
  EXPECT_TRUE(later.stop && later.save);
  EXPECT_FALSE(control.files.ask().save);
  EXPECT_EQ(control.told, (std::vector<std::string>{"SAVE", "STOP"}));
}

TEST(ControlFiles, PauseLastsAsLongAsItsFile) {
  Control control;
  control.touch("PAUSE");
  EXPECT_TRUE(control.files.ask().pause);
  fs::remove(control.dir / "PAUSE");
  until_the_next_look();
  EXPECT_FALSE(control.files.ask().pause);
  EXPECT_EQ(control.told, (std::vector<std::string>{"PAUSE"}));
}

TEST(ControlFiles, LooksAtMostOnceASecond) {
  Control control;
  EXPECT_FALSE(control.files.ask().stop);
  control.touch("STOP");
  EXPECT_FALSE(control.files.ask().stop);
  until_the_next_look();
  EXPECT_TRUE(control.files.ask().stop);
}

TEST(ControlFiles, ASaveIsDueSoManyMinutesAfterTheLastOne) {
  Control control;
  auto now = std::chrono::steady_clock::now();
  ControlFiles files(
      control.dir.path(), *control.world, [](const char*) {}, 10.0,
      [&now] { return now; });
  now += std::chrono::seconds(599);
  EXPECT_FALSE(files.ask().save);
  now += std::chrono::seconds(1);
  EXPECT_TRUE(files.ask().save);
  EXPECT_TRUE(files.ask().save) << "nothing has saved yet";
  files.saved();
  EXPECT_FALSE(files.ask().save);
  now += std::chrono::minutes(10);
  EXPECT_TRUE(files.ask().save);
}

TEST(ControlFiles, ASignalIsToldAndAnswered) {
  const system::SignalWatch watch;
  Control control;
  EXPECT_EQ(control.files.ask().signal, 0);
  std::raise(SIGUSR1);
  EXPECT_FALSE(system::raised_signal().answered);
  const Requests requests = control.files.ask();
  EXPECT_EQ(requests.signal, SIGUSR1);
  EXPECT_TRUE(requests.ends());
  EXPECT_TRUE(system::raised_signal().answered);
}

}  // namespace
}  // namespace longhaul::train
