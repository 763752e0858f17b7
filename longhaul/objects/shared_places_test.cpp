#include "longhaul/objects/shared_places.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

namespace longhaul::objects {
namespace {

TEST(SharedPlaces, ShowBothSidesTheSameBytes) {
  SharedPlaces mine;
  SharedPlaces others(::dup(mine.descriptor()));
  const uint64_t first = mine.take();
  const uint64_t second = mine.take();
  EXPECT_NE(first, second);
  std::memset(others.at(first), 'a', kPlaceBytes);
  std::memset(others.at(second), 'b', kPlaceBytes);
  EXPECT_EQ(mine.at(first)[kPlaceBytes - 1], std::byte{'a'});
  EXPECT_EQ(mine.at(second)[0], std::byte{'b'});
}

TEST(SharedPlaces, AreTakenAgainAndKeepNoMemoryWhenAllAreFree) {
  SharedPlaces places;
  const uint64_t first = places.take();
  const uint64_t second = places.take();
  places.at(first)[5] = std::byte{7};
  places.give_back(first);
  EXPECT_EQ(places.take(), first);
  EXPECT_EQ(places.at(first)[5], std::byte{7});
  places.give_back(second);
  places.give_back(first);
  EXPECT_EQ(places.at(first)[5], std::byte{0});
  EXPECT_EQ(places.take(), first);
  EXPECT_EQ(places.take(), second);
}

}  // namespace
}  // namespace longhaul::objects
