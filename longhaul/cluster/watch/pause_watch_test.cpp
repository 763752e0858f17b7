#include "longhaul/cluster/watch/pause_watch.h"

#include <gtest/gtest.h>

namespace longhaul::cluster {
namespace {

TEST(PauseWatch, ATurnThatTookTooLongIsAPauseAndIsToldOnce) {
  double now = 100.0;
  PauseWatch watch(2.0, [&] { return now; });
  now += 1.9;
  EXPECT_EQ(watch.turn(), 0.0);
  now += 60.0;
  EXPECT_EQ(watch.turn(), 60.0);
  EXPECT_EQ(watch.turn(), 0.0);
}

TEST(PauseWatch, TimeAwakeBeginsAnewAfterEachPauseAndOnlyThen) {
  double now = 0.0;
  PauseWatch watch(2.0, [&] { return now; });
  for (int i = 0; i < 10; ++i) {
    now += 1.0;
    watch.turn();
  }
  EXPECT_EQ(watch.awake_seconds(), 10.0);
  now += 600.0;
  watch.turn();
  EXPECT_EQ(watch.awake_seconds(), 0.0);
  now += 1.5;
  watch.turn();
  EXPECT_EQ(watch.awake_seconds(), 1.5);
}

}  // namespace
}  // namespace longhaul::cluster
