#include "longhaul/monitor/profile_table.h"

#include <gtest/gtest.h>

namespace longhaul::monitor {
namespace {

TEST(ProfileLines, NameTheLongestAndAddUpToTheStep) {
  run::ProfileEvent event;
  event.step = 20;
  event.seconds = 2.0;
  event.clock = "host";
  event.parts = {{{"name", "gradients"}, {"seconds", 1.5}}};
  event.operations = Json::array();
  for (int i = 0; i < 20; ++i) {
    event.operations.push_back({{"name", "op" + std::to_string(i)},
                                {"calls", 2},
                                {"seconds", i == 0 ? 1.0 : 0.01}});
  }
  const std::vector<std::string> lines = profile_lines(event);
  ASSERT_EQ(lines.size(), 20U);
  EXPECT_EQ(lines[0], "profile of step 20: 2.000 s on rank 0, gradients 1.500");
  EXPECT_EQ(lines[2],
            "  op0                                                2     1.0000   50.0%");
  EXPECT_EQ(lines[18],
            "  4 others                                           8     0.0400    2.0%");
  EXPECT_EQ(lines[19],
            "  outside of operations                                    0.8100   40.5%");

  event.products = {{{"name", "longhaul::product"},
                     {"shape", "8 x 4 x 2"},
                     {"calls", 3},
                     {"seconds", 0.5},
                     {"flops", 1e12}}};
  const std::vector<std::string> more = profile_lines(event);
  ASSERT_EQ(more.size(), 22U);
  EXPECT_EQ(more[21],
            "  product 8 x 4 x 2                                  3     0.5000   25.0%   "
            "     2");
}

}  // namespace
}  // namespace longhaul::monitor
