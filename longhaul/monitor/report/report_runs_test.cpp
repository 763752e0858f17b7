#include "longhaul/monitor/report/report_runs.h"

#include <fmt/format.h>

#include <cmath>
#include <regex>
#include <set>

#include "longhaul/monitor/report/report_page.h"
#include "longhaul/monitor/report/report_plots.h"
#include "longhaul/monitor/run_files.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::monitor {
namespace {

constexpr double kNow = 2000.0;

/// Writes a run of some steps whose loss is 4 / step times `factor`, with two
/// validations.
std::string write_run(const fs::path& dir, int64_t steps, double factor) {
  fs::create_directories(dir);
  std::string lines;
  for (int64_t step = 1; step <= steps; ++step) {
    Json line = {{"step", step},       {"attempt", 1},
                 {"grad_norm", 1.0},   {"lr", 0.1},
                 {"seqs_per_s", 8.0},  {"tokens_per_s", 256.0},
                 {"step_time_s", 0.5}, {"time", 1000.0 + static_cast<double>(step)}};
    line["loss"] = factor * 4.0 / static_cast<double>(step);
    lines += line.dump() + "\n";
  }
  for (const auto& [step, loss] : {std::pair{1, 3.25}, {2, 2.5 * factor}, {3, 2.75}}) {
    lines += Json{{"step", step}, {"attempt", 1},   {"validation", "wiki"},
                  {"loss", loss}, {"seconds", 1.0}, {"time", 1100.0}}
                 .dump() +
             "\n";
  }
  write_file(dir / "metrics.jsonl", lines);
  return dir.string();
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(ReportPlots, GradientNormsByLayerShowFourLayersAndNameTheLargest) {
  const TestDirectory dir;
  const std::string run = write_run(dir / "one", 5, 1.0);
  std::string lines;
  for (const int64_t step : {2, 4, 3, 5}) {  // the run went back to step 2 once
    Json event = {{"event", "layer_norms"},
                  {"time", 1000.0},
                  {"step", step},
                  {"embedding", 0.5},
                  {"head", 2}};
    event["layers"] = {0.1, 0.2, 0.3, 0.4 * static_cast<double>(step), 0.5, 0.6, 0.7};
    lines += event.dump() + "\n";
  }
  write_file(dir / "one/events.jsonl", lines);
  RunFiles files(run);
  files.refresh();
  const std::string cards = plot_cards(files);
  EXPECT_HAS(cards, "At step 5 the largest of 7 layers was layer 3: 2.");
  for (const char* name :
       {"embedding", "head", "layer 0", "layer 2", "layer 4", "layer 6"}) {
    EXPECT_HAS(cards, fmt::format("data-name=\"{}\"", name));
  }
  EXPECT_FALSE(cards.find("layer 3\"") != std::string::npos);
}

TEST(ReportRuns, EachRunHasOneColourAndItsNameInEveryPlot) {
  const TestDirectory dir;
  auto runs =
      open_runs({write_run(dir / "one", 5, 1.0), write_run(dir / "two", 4, 1.5)}, kNow);
  const std::string page = runs_page(runs, {}, "longhaul");
  // The key of a run, which shows its colour and name, stands in the plots of training
  // and validation loss, rate, norm and throughput, and in the table.
  EXPECT_EQ(count(page, "<i class=\"key a\"></i>one</span>"), 6U);
  EXPECT_EQ(count(page, "<i class=\"key b\"></i>two</span>"), 6U);
  EXPECT_EQ(count(page, "class=\"line a\""), 5U);
  EXPECT_EQ(count(page, "class=\"line b\""), 5U);
  for (const char* title : {"Training loss", "Validation loss, wiki", "Learning rate",
                            "Gradient norm", "Throughput, tokens per second"}) {
    EXPECT_EQ(count(page, fmt::format("<h3>{}</h3>", title)), 1U) << title;
  }
}

TEST(ReportRuns, TheTableHoldsEachRunAgainstTheFirst) {
  const TestDirectory dir;
  auto runs =
      open_runs({write_run(dir / "one", 5, 1.0), write_run(dir / "two", 4, 1.5)}, kNow);
  const std::string page = runs_page(runs, {}, "longhaul");
  EXPECT_HAS(page,
             "<td class=\"n\">5</td><td class=\"n\">0.8000</td><td class=\"x\">wiki "
             "2.5000 at step 2</td><td class=\"n\">8</td><td class=\"x\">–</td>");
  EXPECT_HAS(page,
             "<td class=\"n\">4</td><td class=\"n\">1.5000</td><td class=\"x\">wiki "
             "2.7500 at step 3</td>");
  EXPECT_HAS(page,
             "not within 5%: 0.00% of 4 common steps are, the worst is off by 50% at "
             "step ");
  const Json json = runs_json(runs, {})["runs"];
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["name"], "one");
  EXPECT_TRUE(json[0]["against_first"].is_null());
  EXPECT_EQ(json[1]["against_first"]["loss"]["points"], 4);
  EXPECT_EQ(json[1]["against_first"]["passed"], false);
  EXPECT_EQ(json[1]["step"], 4);
}

TEST(ReportRuns, WhatHasNoStepInCommonSaysSoInItsRow) {
  const TestDirectory dir;
  AgainstOptions options;
  options.from_step = 5;
  auto runs =
      open_runs({write_run(dir / "one", 5, 1.0), write_run(dir / "two", 4, 1.0)}, kNow);
  EXPECT_HAS(runs_page(runs, options, "longhaul"), "no common step from step 5 on");
  const Json two = runs_json(runs, options)["runs"][1];
  EXPECT_TRUE(two["against_first"].is_null());
  EXPECT_HAS(two["against_first_problem"].get<std::string>(), "no common step");
}

TEST(ReportRuns, RunsOfOneNameAreToldApartByTheDirectoriesAbove) {
  const TestDirectory dir;
  const auto runs = open_runs(
      {write_run(dir / "a" / "x" / "cpt", 2, 1.0),
       write_run(dir / "b" / "x" / "cpt", 2, 1.0),
       write_run(dir / "b" / "y" / "cpt", 2, 1.0), write_run(dir / "c", 2, 1.0)},
      kNow);
  std::vector<std::string> names;
  for (const ReportRun& run : runs) names.push_back(run.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a/x/cpt", "b/x/cpt", "y/cpt", "c"}));
}

TEST(ReportRuns, RefusesTheSameDirectoryTwiceAndARunWithoutAStep) {
  const TestDirectory dir;
  const std::string one = write_run(dir / "one", 2, 1.0);
  fs::create_directory_symlink(one, dir / "link");
  EXPECT_HAS(
      message_of<InputError>([&] { open_runs({one, (dir / "link").string()}, kNow); }),
      "link are the same directory; name each run once");
  const std::string empty = write_run(dir / "empty", 0, 1.0);
  EXPECT_HAS(message_of<InputError>([&] { open_runs({one, empty}, kNow); }),
             "empty has no record of a step in metrics.jsonl to compare");
  EXPECT_HAS(
      message_of<InputError>([&] { open_runs(std::vector<std::string>(17, one), kNow); }),
      "17 runs for one page, which shows at most 16");
}

TEST(ReportRuns, NoTwoOfTheMostRunsLookAlike) {
  const TestDirectory dir;
  std::vector<std::string> dirs;
  for (int i = 0; i < 16; ++i) {
    dirs.push_back(write_run(dir / fmt::format("run{}", i), 3, 1.0));
  }
  auto runs = open_runs(dirs, kNow);
  const std::string page = runs_page(runs, {}, "longhaul");
  std::set<std::string> styles;
  const std::regex key("<i class=\"key ([a-z ]+)\"></i>run");
  for (std::sregex_iterator it(page.begin(), page.end(), key), end; it != end; ++it) {
    styles.insert((*it)[1]);
  }
  EXPECT_EQ(styles.size(), 16U);
}

TEST(ReportPage, MemoryOfFilesIsDrawnApartWhereTheRecordsHaveIt) {
  const TestDirectory dir;
  const std::string path = write_run(dir / "one", 2, 1.0);
  const auto page = [&] {
    RunFiles run(path);
    run.refresh();
    return report_page(run, make_view(run, kNow), "longhaul");
  };
  EXPECT_EQ(page().find("mapped files"), std::string::npos);
  std::string lines = read_text(dir.path() / "one" / "metrics.jsonl", 1 << 20);
  lines += R"({"step":3,"attempt":1,"grad_norm":1,"time":1200,"host_memory_bytes":4000,)"
           R"("host_anonymous_bytes":1000,"host_file_bytes":3000})"
           "\n";
  write_file(dir / "one" / "metrics.jsonl", lines);
  const std::string apart = page();
  EXPECT_HAS(apart, "</i>host, rank 0: all</span>");
  EXPECT_HAS(apart,
             "data-name=\"host, rank 0: anonymous\" data-style=\"c\" data-x=\"1 1 1\" "
             "data-y=\"x x 1000\"");
  EXPECT_HAS(apart,
             "data-name=\"host, rank 0: mapped files\" data-style=\"d\" data-x=\"1 1 "
             "1\" data-y=\"x x 3000\"");
}

TEST(ReportPage, BeginEndAndDurationAreOfTheRecordsAndNotOfTheFiles) {
  const TestDirectory dir;
  const std::string path = write_run(dir / "one", 5, 1.0);
  RunFiles run(path);
  run.refresh();
  const RunView view = make_view(run, kNow);
  EXPECT_HAS(report_page(run, view, "longhaul"),
             "1970-01-01 00:16:40 to 1970-01-01 00:18:20 UTC (1m 40s)");
  const Json ledger = report_json(run, view)["ledger"];
  EXPECT_EQ(ledger["begin"], 1000.5);
  EXPECT_EQ(ledger["end"], 1100.0);
}

TEST(ReportRuns, NamesFromPathsAndFilesAreHarmless) {
  const TestDirectory dir;
  auto runs =
      open_runs({write_run(dir / "<b>", 2, 1.0), write_run(dir / "two\"", 2, 1.0)}, kNow);
  const std::string page = runs_page(runs, {}, "<i>longhaul");
  EXPECT_HAS(page, "&lt;b&gt;</span>");
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(page.find("<i>"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::monitor
