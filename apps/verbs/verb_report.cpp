#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/verbs.h"
#include "longhaul/base/build_info.h"
#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/monitor/against.h"
#include "longhaul/monitor/report/report_csv.h"
#include "longhaul/monitor/report/report_page.h"
#include "longhaul/monitor/report/report_runs.h"
#include "longhaul/monitor/run_view.h"

namespace longhaul::apps {
namespace {

struct ReportCall {
  std::vector<std::string> runs;
  std::string out;
  std::string against;
  std::string csv;
  bool json = false;
  double throughput_rtol = -1.0;  ///< negative: not given
  monitor::AgainstOptions comparison;
};

/// Writes a page for a person; its default name is that of the run with this path.
void write_page(const ReportCall& options, const std::string& run,
                const std::string& page) {
  const fs::path path = options.out.empty()
                            ? fs::path(run).filename().string() + "-report.html"
                            : options.out;
  write_text_atomic(path, page);
  if (!options.json) fmt::print("wrote {}\n", path.string());
}

std::string this_build() { return "longhaul " + build_info().one_line(); }

/// Compares the run with the reference; returns 0, or 1 if the run misses it.
int compare(const ReportCall& options, const monitor::RunFiles& run, Json& json) {
  const auto result =
      monitor::hold_against(monitor::reference_of(run.records()),
                            monitor::read_reference(options.against), options.comparison);
  json["against"] = result.json;
  if (!options.json) {
    for (const std::string& line : result.lines) fmt::print("{}\n", line);
  }
  return result.passed ? 0 : 1;
}

int report_several(const ReportCall& options) {
  if (!options.csv.empty()) {
    fail_input("report", "--csv {} holds one run, and {} runs are given; name one",
               options.csv, options.runs.size());
  }
  if (!options.against.empty()) {
    fail_input("report",
               "--against {} holds one run against a reference, and {} runs are given; "
               "name that reference first among the runs, or report one run at a time",
               options.against, options.runs.size());
  }
  auto runs = monitor::open_runs(options.runs, system_time());
  if (!options.out.empty() || !options.json) {
    write_page(options, runs[0].view.name,
               monitor::runs_page(runs, options.comparison, this_build()));
  }
  if (options.json) {
    fmt::print("{}\n", json_text(monitor::runs_json(runs, options.comparison), 2));
  }
  return 0;
}

int run_report(ReportCall options) {
  if (options.throughput_rtol >= 0.0) {
    options.comparison.throughput_rtol = options.throughput_rtol;
  }
  if (options.runs.size() > 1) return report_several(options);
  monitor::RunFiles run(options.runs[0]);
  run.refresh();
  const monitor::RunView view = monitor::make_view(run, system_time());
  Json json = options.json ? monitor::report_json(run, view) : Json::object();
  const int exit_code = options.against.empty() ? 0 : compare(options, run, json);
  if (!options.csv.empty()) {
    write_text_atomic(options.csv, monitor::report_csv(run));
    if (!options.json) fmt::print("wrote {}\n", options.csv);
  }
  const bool nothing_else =
      !options.json && options.against.empty() && options.csv.empty();
  const bool page = !options.out.empty() || nothing_else;
  if (page) write_page(options, view.name, monitor::report_page(run, view, this_build()));
  if (options.json) fmt::print("{}\n", json_text(json, 2));
  return exit_code;
}

}  // namespace

void add_report(CLI::App& program, Outcome& outcome) {
  const auto options = std::make_shared<ReportCall>();
  CLI::App* verb = program.add_subcommand(
      "report",
      "One self-contained HTML page about a run, or about several over each other; or "
      "holds a run against a reference");
  verb->add_option("run", options->runs,
                   "the run's directory; several are drawn over each other, and each is "
                   "held against the first")
      ->required();
  verb->add_option("--out", options->out,
                   "the page (default: the first RUN's name-report.html here)");
  verb->add_flag("--json", options->json, "the figures for programs, on standard output");
  verb->add_option("--csv", options->csv,
                   "a file for the figures of each step, for trackers and spreadsheets; "
                   "a page is then written only with --out");
  verb->add_option(
      "--against", options->against,
      "another run's directory, or a file of golden losses: a number a line, "
      "step and number, CSV with step and loss, or JSON lines with them");
  verb->add_option("--rtol", options->comparison.rtol,
                   "how far a loss may lie from the reference's")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--points", options->comparison.points,
                   "share of the points that must lie within")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--from-step", options->comparison.from_step,
                   fmt::format("earlier points are not compared (default: {}; all steps "
                               "where one of the two ends before)",
                               monitor::kGateStep))
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--throughput-rtol", options->throughput_rtol,
                   "how much slower than the reference the median throughput may be "
                   "(default: not compared)")
      ->check(CLI::Range(0.0, 1.0));
  verb->footer(
      "With --against it ends with 1 when the run misses the reference, and says where;\n"
      "a page or figures are then written only with --out or --json.\n"
      "Examples:\n"
      "  longhaul report runs/cpt --out cpt.html\n"
      "  longhaul report runs/old runs/new --out both.html\n"
      "  longhaul report runs/cpt --csv cpt.csv   # trackio.import_csv reads it\n"
      "  longhaul report runs/cpt --against golden_steploss.txt\n"
      "  longhaul report runs/new --against runs/old --rtol 0.01 --from-step 1 "
      "--throughput-rtol 0.05");
  verb->callback([options, &outcome] { outcome.exit_code = run_report(*options); });
}

}  // namespace longhaul::apps
