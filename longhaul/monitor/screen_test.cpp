#include "longhaul/monitor/screen.h"

#include <gtest/gtest.h>

#include <limits>

#include "longhaul/monitor/plain_text.h"

namespace longhaul::monitor {
namespace {

TEST(PlainText, LetsNoControlCharacterOrTrickThrough) {
  EXPECT_EQ(plain_text("a\x1b[2Jb\rc\nd\te\x7f"), "a?[2Jb c d e?");
  EXPECT_EQ(plain_text("\xc2\x9b"
                       "31m \xe2\x80\xae"
                       "abc \xe2\x80\x8b|"),
            "?31m ?abc ?|");
  EXPECT_EQ(plain_text("\xff\xc3(\xed\xa0\x80"),
            std::string(2, '?') + "(" + std::string(3, '?'));
  EXPECT_EQ(plain_text("Zürich 東京 🚀"), "Zürich 東京 🚀");
  EXPECT_EQ(plain_text("abcdef", 3), "abc...");
  EXPECT_EQ(plain_text("aé", 2), "a...");
}

TEST(PlainText, CutsByColumnsNotBytes) {
  EXPECT_EQ(text_columns("Zü東"), 4U);
  EXPECT_EQ(cut_to_columns("Zürich", 4), "Zür…");
  EXPECT_EQ(cut_to_columns("東京都", 4), "東…");
  EXPECT_EQ(fit_to_columns("ab", 4), "ab  ");
  EXPECT_EQ(fit_to_columns("ab", 4, true), "  ab");
}

RunView hostile_view() {
  RunView view;
  view.name = plain_text("/runs/\x1b]0;owned\x07");
  view.now = 1000.0;
  view.state = "training";
  view.detail = std::string(500, 'x');
  view.step = 1234;
  view.last_step = 30'000;
  view.loss = view.mfu = std::numeric_limits<double>::quiet_NaN();
  view.checkpoint = CheckpointInfo{1200, 940.0, 1e9, true, ""};
  for (int i = 0; i < 40; ++i) {
    run::RunStatus::Node node;
    node.name = plain_text("節点\x1b[31m" + std::to_string(i));
    node.devices = {{"cuda:0", 1'000'000'000, 80'000'000'000, 0.5}};
    view.nodes.push_back(node);
    run::RunStatus::Rank rank;
    rank.rank = i;
    rank.node = node.name;
    rank.busy_seconds = 1.0 + i * 0.1;
    view.ranks.push_back({rank, rank.busy_seconds});
  }
  return view;
}

std::vector<Event> hostile_events() {
  std::vector<Event> events;
  for (int i = 0; i < 50; ++i) {
    events.push_back(
        {"fault", 900.0 + i, Json{{"cause", "\x1b[2J\x1b[H gone"}, {"node", "n\xff"}}});
  }
  return events;
}

TEST(Screen, FitsAnyWindowAndHoldsNoControlCharacter) {
  for (const size_t width : {20, 50, 60, 80, 133, 200}) {
    for (const size_t height : {5, 24, 60}) {
      const auto lines =
          draw_screen(hostile_view(), hostile_events(), {width, height}, false);
      EXPECT_LE(lines.size(), height);
      for (const std::string& line : lines) {
        EXPECT_LE(text_columns(line), width) << line;
        for (const char c : line) {
          EXPECT_GE(static_cast<unsigned char>(c), 0x20U) << line;
        }
      }
    }
  }
}

TEST(Screen, ColoursAreOursAndEndOnEachLine) {
  for (std::string line :
       draw_screen(hostile_view(), hostile_events(), {100, 40}, true)) {
    size_t open = 0;
    for (size_t at = line.find('\033'); at != std::string::npos;
         at = line.find('\033', at + 1)) {
      const std::string sequence = line.substr(at, line.find('m', at) - at + 1);
      open = sequence == "\033[0m" ? 0 : open + 1;
      EXPECT_LE(sequence.size(), 5U) << sequence;
    }
    EXPECT_EQ(open, 0U) << line;
  }
}

TEST(Screen, ShowsTheSlowestRankFirstAndTheLastEvents) {
  RunView view = hostile_view();
  std::swap(view.ranks.front(), view.ranks.back());
  std::string text;
  for (const auto& line : draw_screen(view, hostile_events(), {120, 60}, false)) {
    text += line + "\n";
  }
  EXPECT_NE(text.find("step 1,234 of 30,000 (4.1%)"), std::string::npos) << text;
  EXPECT_NE(text.find("step 1,200, 1.0 GB, 1m 00s ago"), std::string::npos) << text;
  EXPECT_NE(text.find("x4.90"), std::string::npos) << text;
  EXPECT_NE(text.find("51 s ago"), std::string::npos) << text;
  EXPECT_NE(text.find("1.0 GB of 80.0 GB (1%)"), std::string::npos) << text;
}

TEST(Screen, HasALineOfExpertsWhereTheModelHasSome) {
  RunView view = hostile_view();
  const auto text = [&] {
    std::string all;
    for (const auto& line : draw_screen(view, {}, {80, 30}, false)) all += line + "\n";
    return all;
  };
  EXPECT_EQ(text().find("experts"), std::string::npos);
  EXPECT_FALSE(to_json(view).contains("expert_use"));
  view.expert_use = 0.625;
  view.expert_busiest = 2.5;
  view.router_entropy = 1.75;
  EXPECT_NE(text().find("experts     62.5% in use where least   busiest 2.50 x even   "
                        "entropy 1.750\n"),
            std::string::npos)
      << text();
  EXPECT_EQ(to_json(view)["expert_busiest"], 2.5);
}

/// Returns the screen of a run whose loss falls, as text.
std::string curved_screen(RunView view, const ScreenSize& size) {
  for (int i = 0; i < 400; ++i) {
    view.loss_course.values.push_back(9.0 - 0.02 * i);
    view.memory_course.values.push_back(1e9 + 1e6 * i);
  }
  view.loss_course.first = view.loss_course.most = 9.0;
  view.loss_course.last = 1.02;
  view.loss_course.least = 0.5;
  view.memory_course.first = view.memory_course.least = 1e9;
  view.memory_course.last = 1.4e9;
  view.memory_course.most = 1.5e9;
  std::string text;
  size_t count = 0;
  for (const auto& line : draw_screen(view, hostile_events(), size, false)) {
    EXPECT_LE(text_columns(line), size.width) << line;
    text += line + "\n";
    ++count;
  }
  EXPECT_LE(count, size.height) << text;
  return text;
}

RunView plain_view() {
  RunView view = hostile_view();
  view.nodes.clear();
  view.ranks.clear();
  view.detail.clear();
  return view;
}

TEST(Screen, AUsualTerminalHasCurvesOfLossAndMemoryWithTheirValues) {
  const std::string text = curved_screen(plain_view(), {80, 19});
  EXPECT_NE(text.find("loss curve  ██"), std::string::npos) << text;
  EXPECT_NE(text.find("▁  first 9.0000  last 1.0200  min 0.5000\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("host memory ▁"), std::string::npos) << text;
  EXPECT_NE(text.find("█  first 1.0 GB  last 1.4 GB  max 1.5 GB (rank 0)\n"),
            std::string::npos)
      << text;
}

TEST(Screen, ALargeTerminalHasCurvesOfSeveralRows) {
  const std::string text = curved_screen(plain_view(), {120, 40});
  EXPECT_NE(text.find("  first 9.0000\n            ██"), std::string::npos) << text;
  EXPECT_NE(text.find("  last 1.0200\n            ██"), std::string::npos) << text;
}

TEST(Screen, CurvesLeaveRanksAndEventsTheirLines) {
  RunView view = hostile_view();
  view.nodes.resize(2);
  view.ranks.resize(8);
  const std::string text = curved_screen(view, {120, 40});
  EXPECT_NE(text.find("loss curve"), std::string::npos) << text;
  EXPECT_EQ(text.find(" more\n"), std::string::npos) << text;
  EXPECT_NE(text.find("fault"), std::string::npos) << text;
}

TEST(Screen, ASmallWindowHasNoCurves) {
  for (const ScreenSize size : {ScreenSize{80, 16}, ScreenSize{50, 24}}) {
    EXPECT_EQ(curved_screen(plain_view(), size).find("loss curve"), std::string::npos)
        << size.width << "x" << size.height;
  }
  // A run with fewer than two steps has no loss curve.
  for (const auto& line : draw_screen(plain_view(), {}, {120, 40}, false)) {
    EXPECT_EQ(line.find("loss curve"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace longhaul::monitor
