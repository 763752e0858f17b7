#include "longhaul/run/place.h"

#include <gtest/gtest.h>

#include <set>

namespace longhaul::run {
namespace {

TEST(Place, HasATextThatIsReadAgain) {
  const Place place{.pp = 1, .dp = 20, .cp = 3, .tp = 0};
  EXPECT_EQ(to_string(place), "pp 1 dp 20 cp 3 tp 0");
  EXPECT_EQ(parse_place("pp 1 dp 20 cp 3 tp 0"), place);
}

TEST(Place, IsReadFromNoOtherText) {
  for (const char* text : {"", "pp 1", "pp 1 dp 0 cp 0 tp", "pp 1 dp 0 cp 0 tp x",
                           "dp 1 pp 0 cp 0 tp 0", "pp 1 dp 0 cp 0 tp 0 ep 1",
                           "pp 99999999999 dp 0 cp 0 tp 0", "pp 1  dp 0 cp 0 tp 0"}) {
    EXPECT_FALSE(parse_place(text)) << text;
  }
}

TEST(Place, WithoutAxesIsWhatTheRanksAlongThemHaveInCommon) {
  const Place place{.pp = 1, .dp = 2, .cp = 3, .tp = 4};
  EXPECT_EQ(without(place, kDataAxes), (Place{.pp = 1, .tp = 4}));
  EXPECT_EQ(without(place, kPpAxis), (Place{.dp = 2, .cp = 3, .tp = 4}));
  EXPECT_EQ(without(place, other_axes(kTpAxis)), Place{.tp = 4});
  EXPECT_EQ(without(place, kAllAxes), Place{});
}

TEST(GroupKind, HasANameOfItsOwnThatIsReadAgain) {
  std::set<std::string> names;
  for (int i = 0; i < kGroupKinds; ++i) {
    const auto kind = static_cast<GroupKind>(i);
    names.insert(group_name(kind));
    EXPECT_EQ(group_of_name(group_name(kind)), kind) << group_name(kind);
    // A record keeps 24 bytes of a group's name.
    EXPECT_LE(std::string(group_name(kind)).size(), 24U) << group_name(kind);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kGroupKinds));
  EXPECT_STREQ(group_name(GroupKind::KeyReplicas), "key replicas");
  EXPECT_STREQ(group_name(GroupKind::ExpertReplicas), "expert replicas");
  EXPECT_FALSE(group_of_name("world"));
}

}  // namespace
}  // namespace longhaul::run
