#include "longhaul/monitor/plot.h"

#include "longhaul/monitor/html.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhaul/monitor/axis.h"

namespace longhaul::monitor {
namespace {

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> found;
  for (const Tick& tick : axis.ticks) found.push_back(tick.label);
  return found;
}

using Labels = std::vector<std::string>;

TEST(Axis, TicksAreRoundNumbersWithTheDecimalsTheyNeed) {
  EXPECT_EQ(labels(linear_axis(0, 0.93, 5, Unit::Number, true)),
            (Labels{"0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(labels(linear_axis(0, 30'000, 6, Unit::Number, false)),
            (Labels{"0", "5k", "10k", "15k", "20k", "25k", "30k"}));
  EXPECT_EQ(labels(linear_axis(0, 1'000'000, 5, Unit::Number, false)),
            (Labels{"0", "0.2M", "0.4M", "0.6M", "0.8M", "1.0M"}));
  EXPECT_EQ(labels(linear_axis(0, 1.5e-5, 3, Unit::Number, true)),
            (Labels{"0", "5.0e-06", "1.0e-05", "1.5e-05"}));
  EXPECT_EQ(labels(linear_axis(0, 3e-4, 3, Unit::Number, true)).back(), "3e-04");
  EXPECT_EQ(labels(linear_axis(0, 0.5, 5, Unit::Percent, true)).back(), "50%");
}

TEST(Axis, LogTicksArePowersOfTenWithTwosAndFivesWhereFew) {
  EXPECT_EQ(labels(log_axis(1, 50, 6, Unit::Number)),
            (Labels{"1", "2", "5", "10", "20", "50"}));
  const Axis wide = log_axis(1e-8, 1e8, 6, Unit::Number);
  EXPECT_LE(wide.ticks.size(), 8U);
  EXPECT_GE(wide.ticks.size(), 4U);
}

TEST(Axis, AnyRangeHasAFewTicksInside) {
  for (const double low : {-1e300, -5.0, 0.0, 1e-300, 3.0, 1e9}) {
    for (const double range : {0.0, 1e-12, 1.0, 1e6, 1e200}) {
      const Axis axis = linear_axis(low, low + range, 5, Unit::Number, true);
      EXPECT_LT(axis.low, axis.high);
      EXPECT_GE(axis.ticks.size(), 2U) << low << " " << range;
      EXPECT_LE(axis.ticks.size(), 12U) << low << " " << range;
      for (const Tick& tick : axis.ticks) {
        EXPECT_GE(axis.place(tick.value), -0.01);
        EXPECT_LE(axis.place(tick.value), 1.01);
      }
    }
  }
}

TEST(Plot, ASpikeOfOnePointInAMillionKeepsItsHeight) {
  std::vector<Point> points;
  for (int i = 0; i < 1'000'000; ++i) points.push_back({static_cast<double>(i), 2.0});
  points[618'034].y = 9.0;
  points[100].y = -1.0;
  const Axis x = linear_axis(0, 999'999, 7, Unit::Number, false);
  const auto columns = by_column(points, x, 500);
  double high = 0.0;
  double low = 9.0;
  size_t count = 0;
  for (const PixelColumn& column : columns) {
    high = std::max(high, column.high);
    low = std::min(low, column.low);
    count += column.points;
    EXPECT_NEAR(column.mean, 2.0, 0.01);
  }
  EXPECT_EQ(high, 9.0);
  EXPECT_EQ(low, -1.0);
  EXPECT_EQ(count, points.size());
}

TEST(Plot, FewPointsStandInThePageAsTheyAre) {
  const std::string svg =
      draw_plot({"Loss"}, {{"l", "a", {{5, 3.25}, {6, NAN}, {10, 1.0 / 3.0}}}}, {});
  EXPECT_NE(svg.find("data-name=\"l\" data-style=\"a\" data-x=\"5 1 4\" data-y=\"3.25 x "
                     "0.33333\">"),
            std::string::npos)
      << svg;
  EXPECT_NE(svg.find("data-unit=\"number\" data-range=\"5 10\">"), std::string::npos);
}

TEST(Plot, APointWithoutNeighboursIsDrawn) {
  const std::string ring = "m-2.2 0a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0";
  const auto line_of = [](const std::vector<Point>& points) {
    const std::string svg = draw_plot({"Loss"}, {{"l", "a", points}}, {});
    const std::string begin = "<path class=\"line a\" d=\"";
    const size_t at = svg.find(begin) + begin.size();
    return svg.substr(at, svg.find('"', at) - at);
  };
  EXPECT_EQ(line_of({{5, 3.0}}), "M341.0 118.0" + ring);
  const std::string pieces =
      line_of({{0, 1.0}, {1, NAN}, {2, 1.0}, {3, 1.0}, {4, NAN}, {5, 2.0}});
  EXPECT_EQ(std::ranges::count(pieces, 'M'), 3);
  EXPECT_EQ(std::ranges::count(pieces, 'L'), 1);
  EXPECT_EQ(pieces.find(ring), pieces.find('m'));
  EXPECT_NE(pieces.rfind(ring), pieces.find(ring));
  EXPECT_TRUE(pieces.ends_with(ring));
  EXPECT_EQ(line_of({{5, 3.0}, {6, 4.0}}).find('m'), std::string::npos);
}

TEST(Plot, OfManyPointsThePageKeepsMeansAndExtremesOfColumns) {
  std::vector<Point> points;
  for (int i = 1; i <= 40; ++i) points.push_back({static_cast<double>(i), 2.0});
  points[0].y = 1.0;
  points[39].y = 11.0;
  PlotOptions options{"Rate", Unit::Bytes, Scale::FromZero};
  options.kept = 4;
  const std::string svg = draw_plot(options, {{"", "a", points}}, {});
  EXPECT_NE(svg.find("data-x=\"1 10 10 10\" data-y=\"1.9 2 2 2.9\" data-low=\"1 2 2 2\" "
                     "data-high=\"2 2 2 11\" data-end=\"40\">"),
            std::string::npos)
      << svg;
  EXPECT_NE(svg.find("data-unit=\"bytes\" data-range=\"1 40\" data-zero=\"\">"),
            std::string::npos);
}

TEST(Plot, ItsSizeDoesNotGrowWithTheRun) {
  std::vector<Point> points;
  for (int i = 0; i < 300'000; ++i) {
    points.push_back({static_cast<double>(i), i % 7 == 0 ? NAN : std::sin(i)});
  }
  std::vector<PlotMark> marks(10'000, {5.0, "bad", "x"});
  const std::string svg = draw_plot({"Loss"}, {{"loss", "a", points, true}}, marks);
  EXPECT_LT(svg.size(), 400'000U);
}

TEST(Html, ARowHasTheClassesOfItsCellsAndATableItsRows) {
  EXPECT_EQ(html_row("td", {{"a"}, {"1", "n"}}),
            "<tr><td>a</td><td class=\"n\">1</td></tr>");
  EXPECT_EQ(html_table(html_row("th", {{""}})),
            "<div class=\"scroll\"><table><tr><th></th></tr></table></div>");
}

TEST(Plot, TextIsEscapedAndHarmless) {
  EXPECT_EQ(escape("<script>\"a\" & 'b'\x1b[31m\xff"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;?[31m?");
  const std::string svg = draw_plot({"</svg><script>"}, {{"<b>", "a", {{1, 2}}, true}},
                                    {{1.0, "bad", "<i>"}});
  for (const char* bad : {"<script", "<b>", "<i>"}) {
    EXPECT_EQ(svg.find(bad), std::string::npos) << bad;
  }
}

TEST(Plot, ValuesThatAreNotFiniteAreMarkedAndNothingElse) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::string none = draw_plot({"Loss"}, {{"", "a", {{1, NAN}, {2, inf}}}}, {});
  EXPECT_NE(none.find("no values yet"), std::string::npos);
  const std::string some =
      draw_plot({"Loss"}, {{"l", "a", {{1, 3}, {2, inf}, {3, 4}}}}, {});
  EXPECT_NE(some.find("l at step 2 is not finite"), std::string::npos);
  EXPECT_EQ(some.find("nan "), std::string::npos);
  EXPECT_EQ(some.find("inf "), std::string::npos);
}

TEST(Plot, TheScaleIsLogarithmicWhereValuesDifferMuch) {
  const std::vector<Point> wide = {{1, 1.0}, {2, 5000.0}};
  const std::vector<Point> narrow = {{1, 2.0}, {2, 11.0}};
  EXPECT_NE(draw_plot({"g"}, {{"", "a", wide}}, {}).find("log scale"), std::string::npos);
  EXPECT_EQ(draw_plot({"g"}, {{"", "a", narrow}}, {}).find("log scale"),
            std::string::npos);
}

}  // namespace
}  // namespace longhaul::monitor
