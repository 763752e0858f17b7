#include "longhaul/monitor/report/report_experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/monitor/heat_map.h"
#include "longhaul/monitor/report/report_plots.h"
#include "longhaul/monitor/run_view.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::monitor {
namespace {

size_t times_in(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

std::string loads_line(int64_t step, const std::vector<std::vector<int64_t>>& layers) {
  run::ExpertLoadsEvent event{step, {}};
  for (size_t i = 0; i < layers.size(); ++i) {
    event.layers.push_back(
        {static_cast<int64_t>(i), 1.5 + static_cast<double>(i), 0.5, layers[i]});
  }
  Json line = run::event_fields(event);
  line["event"] = run::ExpertLoadsEvent::kKind;
  line["time"] = 1000.0;
  return line.dump() + "\n";
}

/// Returns the cards of a run whose events.jsonl and metrics.jsonl have these texts.
std::string cards_of(const std::string& events, const std::string& steps = "") {
  const TestDirectory dir;
  write_file(dir / "events.jsonl", events);
  write_file(dir / "metrics.jsonl", steps);
  RunFiles run(dir.path());
  run.refresh();
  for (const Event& event : run.events()) {
    EXPECT_FALSE(event.kind == run::ExpertLoadsEvent::kKind && is_shown(event));
  }
  return expert_cards(run, {});
}

TEST(HeatMap, NeighboursOfOneLevelAreOneLineAndTheScriptHasEachValue) {
  HeatMap map{"layer <3>", 2, {1, 100, 200}, 300, {1.0, 1.2, 0.0, run::kNoFigure, 9, 9}};
  const std::string svg = heat_panel(map);
  EXPECT_HAS(svg, "<b>layer &lt;3&gt;</b>");
  EXPECT_HAS(svg,
             "data-rows=\"2\" data-x=\"1 99 100\" data-percent=\"100 120 0 x 900 900\"");
  EXPECT_HAS(svg,
             "<path class=\"l0\" d=\"M2 0h1\"/><path class=\"l4\" d=\"M0 0h2\"/>"
             "<path class=\"l7\" d=\"M1 1h2\"/></g>");
  EXPECT_EQ(heat_panel({}), "");
}

TEST(HeatMap, TheLegendNamesEachLevel) {
  EXPECT_EQ(times_in(heat_legend(), "class=\"swatch\""), 8U);
  EXPECT_HAS(heat_legend(),
             "<rect class=\"cell l4\" width=\"12\" height=\"12\" "
             "rx=\"3\"/></svg>0.8 to 1.25</span>");
}

TEST(ReportExperts, EachLayerHasAMapOfItsExpertsOverTheSteps) {
  std::string events;
  // Steps 200 and 300 were done again after a rollback.
  for (const int64_t step : {1, 100, 200, 300, 200, 300}) {
    events += loads_line(step, {{step, step, 0, 0}, {5, 5, 5, 5}});
  }
  const std::string cards = cards_of(events);
  EXPECT_HAS(cards, "<h3>Loads of experts</h3>");
  EXPECT_HAS(cards, "At step 300 layer 0 used least of its experts: 1.50 of 4.</p>");
  EXPECT_HAS(cards, "<b>layer 0: 1.5 of 4 in use</b>");
  EXPECT_HAS(cards, "<b>layer 1: 2.5 of 4 in use</b>");
  EXPECT_HAS(cards,
             "data-rows=\"4\" data-x=\"1 99 100 100\" data-percent=\"200 200 200 200 "
             "200 200 200 200 0 0 0 0 0 0 0 0\"");
  EXPECT_EQ(times_in(cards, "<svg class=\"heat\""), 2U);
  EXPECT_EQ(times_in(cards, "are shown"), 0U);
}

TEST(ReportExperts, AColumnWithoutAnEventGoesOnAndOneOfSeveralHasTheMean) {
  std::string events;
  for (const int64_t step : {1, 2, 3, 100}) {
    events += loads_line(step, {{step, 0}, {1, step == 3 ? 0 : 1}});
  }
  // Four columns of 24.75 steps: three events, none, none, and one.
  EXPECT_HAS(cards_of(events),
             "data-x=\"1 0 0 99\" data-percent=\"133 133 133 100 67 67 67 100\"");
}

TEST(ReportExperts, ManyLayersAreChosenEvenlyAndThePageStaysSmall) {
  std::vector<std::vector<int64_t>> layers(48, std::vector<int64_t>(8));
  for (size_t i = 0; i < 48 * 8; ++i) {
    layers[i / 8][i % 8] = static_cast<int64_t>(i * 7919 % 100);
  }
  std::string events;
  for (int64_t step = 0; step <= 1000; ++step) {
    events += loads_line(100 * step, layers);
    std::ranges::rotate(layers[static_cast<size_t>(step % 48)],
                        layers[static_cast<size_t>(step % 48)].begin() + 1);
  }
  const std::string cards = cards_of(events);
  EXPECT_EQ(times_in(cards, "<svg class=\"heat\""), 16U);
  EXPECT_HAS(cards, "16 of 48 layers are shown, evenly chosen.</p>");
  EXPECT_HAS(cards, "<b>layer 0:");
  EXPECT_HAS(cards, "<b>layer 47:");
  EXPECT_LT(cards.size(), 500'000U);
}

TEST(ReportExperts, ManyExpertsHaveFewerMapsAndColumns) {
  std::string events;
  for (int64_t step = 1; step <= 300; ++step) {
    std::vector<int64_t> counts(256, 1);
    for (size_t i = 0; i < 256; ++i) counts[i] = static_cast<int64_t>(i) * step % 7;
    events += loads_line(step, std::vector(6, counts));
  }
  const std::string cards = cards_of(events);
  EXPECT_EQ(times_in(cards, "<svg class=\"heat\""), 4U);
  EXPECT_LT(cards.size(), 2'000'000U);
}

TEST(ReportPairs, RewardsAreDrawnWhereTheRecordsHaveThem) {
  const TestDirectory dir;
  const auto cards = [&](const std::string& more) {
    write_file(dir / "metrics.jsonl",
               R"({"step":1,"attempt":1,"grad_norm":1,"time":1200)" + more + "}\n");
    RunFiles run(dir.path());
    run.refresh();
    return pair_cards(run, {});
  };
  EXPECT_EQ(cards(""), "");
  const std::string drawn =
      cards(R"(,"rewards/chosen":0.25,"rewards/rejected":-0.5,"rewards/margins":0.75)"
            R"(,"rewards/accuracies":0.625,"logps/chosen":-12.5,"logps/rejected":-20.5)");
  EXPECT_HAS(drawn, "<h3>Rewards</h3>");
  EXPECT_HAS(drawn, "<h3>Pairs with a positive margin</h3>");
  for (const char* value : {"0.25", "-0.5", "0.75", "0.625", "-12.5", "-20.5"}) {
    EXPECT_HAS(drawn, fmt::format("data-y=\"{}\"", value));
  }
}

TEST(ReportExperts, FiguresOfStepsAreDrawnWhereTheRecordsHaveThem) {
  const auto step = [](const char* more) {
    return fmt::format(R"({{"step":1,"attempt":1,"grad_norm":1,"time":1200{}}})", more) +
           "\n";
  };
  EXPECT_EQ(cards_of("", step("")), "");
  const std::string cards =
      cards_of("", step(R"(,"expert_use":0.5,"router_entropy":1.25)"));
  EXPECT_HAS(cards, "<h3>Experts in use, in the layer with least</h3>");
  EXPECT_HAS(cards, "data-x=\"1\" data-y=\"0.5\"");
  EXPECT_HAS(cards, "<h3>Entropy of the router, nats</h3>");
  EXPECT_HAS(cards, "data-y=\"1.25\"");
}

TEST(ReportExperts, EventsOfAnybodyAreHarmless) {
  const std::string head = R"({"event":"expert_loads","time":1000,"step":)";
  std::string events = head + R"("x","layers":3})" + "\n";
  events += head + R"(1,"layers":[{"layer":0,"counts":[0,0]},{"layer":1,"counts":[]}]})";
  events += "\n" + head + R"(2,"layers":[7,{"layer":2,"counts":[-5,)" +
            R"(9223372036854775807,9223372036854775807],"effective":null}]})" + "\n";
  events += head + R"(9000000000000000,"layers":[{"layer":2,"counts":[1,"x",2,3]},)" +
            R"({"layer":-4,"counts":[1,1],"effective":1e300}]})" + "\n";
  const std::string cards = cards_of(events);
  EXPECT_HAS(cards, "layer 2: 0.0 of 3 in use");
  EXPECT_EQ(cards.find("nan"), std::string::npos);
  EXPECT_EQ(cards.find("inf"), std::string::npos);
}

TEST(RunFiles, KeepsTheLoadsOfSomeEventsAndAllOtherEvents) {
  const TestDirectory dir;
  const std::string pad(1'000'000, 'x');
  std::string events;
  for (int step = 1; step <= 90; ++step) {
    events += fmt::format(R"({{"event":"expert_loads","time":1000,"step":{},)"
                          R"("layers":[{{"counts":[1]}}],"pad":"{}"}})",
                          step, pad) +
              "\n";
  }
  events += R"({"event":"end","time":1001,"step":90})"
            "\n";
  write_file(dir / "events.jsonl", events);
  RunFiles run(dir.path());
  run.refresh();
  ASSERT_EQ(run.events().size(), 91U);
  std::vector<int64_t> kept;
  for (const Event& event : run.events()) {
    const auto loads = event.as<run::ExpertLoadsEvent>();
    EXPECT_EQ(event.fields.contains("pad"), !loads.layers.empty());
    if (!loads.layers.empty()) kept.push_back(loads.step);
  }
  // The events have 33 MB. They are halved twice, so every fourth event is left.
  ASSERT_EQ(kept.size(), 23U);
  EXPECT_EQ(kept.front(), 1);
  EXPECT_EQ(kept[1], 5);
  EXPECT_EQ(kept.back(), 89);
  EXPECT_EQ(run.events().back().kind, "end");
}

}  // namespace
}  // namespace longhaul::monitor
