#include "longhaul/monitor/report/report_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/html.h"
#include "longhaul/monitor/report/report_frame.h"
#include "longhaul/monitor/report/report_page.h"
#include "longhaul/monitor/report/report_plots.h"
#include "longhaul/monitor/report/report_tasks.h"
#include "longhaul/monitor/report/report_tree.h"
#include "longhaul/run/files.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kMostRuns = 16;
constexpr size_t kMostSetCards = 4;
constexpr std::array<const char*, 8> kColours = {"a", "b", "c", "d", "e", "f", "g", "h"};

/// Returns the CSS classes of a run's lines: its colour and, from the ninth run on,
/// dashes.
std::string style_of(size_t run) {
  return std::string(kColours[run % kColours.size()]) +
         (run < kColours.size() ? "" : " old");
}

/// Returns the last `parts` names of a path.
std::string end_of(const std::string& path, size_t parts) {
  size_t from = path.size();
  while (parts-- > 0 && from != 0 && from != std::string::npos) {
    from = path.rfind('/', from - 1);
  }
  return from == std::string::npos ? path : path.substr(from + 1);
}

/// Names each run by the last names of its path, as many as tell it from all other runs.
void name_runs(std::vector<ReportRun>& runs) {
  for (ReportRun& run : runs) {
    const std::string& path = run.view.name;
    size_t parts = 1;
    const auto shared = [&](const ReportRun& other) {
      return &other != &run && end_of(other.view.name, parts) == end_of(path, parts);
    };
    while (std::ranges::any_of(runs, shared) && end_of(path, parts) != path) ++parts;
    run.name = end_of(path, parts);
  }
}

/// The comparison of a run with the first run. `problem` says why they cannot be
/// compared.
struct Difference {
  Json json;  ///< null: nothing could be compared
  std::string problem;
};

Difference difference_of(const ReportRun& run, const Reference& first,
                         const AgainstOptions& options) {
  try {
    return {hold_against(reference_of(run.files->records()), first, options).json, ""};
  } catch (const InputError& error) {
    return {nullptr, error.message()};
  }
}

std::vector<Difference> differences(const std::vector<ReportRun>& runs,
                                    const AgainstOptions& options) {
  const Reference first = reference_of(runs[0].files->records());
  std::vector<Difference> all(1);
  for (size_t i = 1; i < runs.size(); ++i) {
    all.push_back(difference_of(runs[i], first, options));
  }
  return all;
}

std::string describe(const Difference& difference, double rtol) {
  const Json& json = difference.json;
  if (json.is_null()) return difference.problem;
  const Json& loss = json["loss"];
  const auto worst = loss["worst"].get<double>();
  const auto passed = [](const Json& part) { return part["passed"].get<bool>(); };
  std::string text = fmt::format(
      "{}within {:g}%: {:.2f}% of {} are, the worst is off by {} at step {}",
      passed(loss) ? "" : "not ", 100.0 * rtol, 100.0 * loss["share"].get<double>(),
      counted(loss["points"].get<int64_t>(), "common step"),
      figure_or_dash(100.0 * worst, "{:.3g}%"),
      grouped(loss["worst_step"].get<int64_t>()));
  if (json.contains("throughput")) {
    const Json& throughput = json["throughput"];
    text +=
        fmt::format("; throughput {:.1f}%{}", 100.0 * throughput["ratio"].get<double>(),
                    passed(throughput) ? "" : ", which is too low");
  }
  return text;
}

/// Returns the lowest loss of each validation set, and the step at which it was measured.
std::string best_validations(const RunFiles& files) {
  std::string text;
  for (const SetChange& set : set_changes(files)) {
    const auto best = std::ranges::min_element(
        set.losses, {}, [](const auto& at) {  // NaN lies above all
          return std::isfinite(at.second) ? at.second : HUGE_VAL;
        });
    text += fmt::format("{}{} {} at step {}", text.empty() ? "" : ", ", set.name,
                        figure_or_dash(best->second, "{:.4f}"), grouped(best->first));
  }
  return text.empty() ? "–" : text;
}

std::string runs_table(const std::vector<ReportRun>& runs,
                       const AgainstOptions& options) {
  const std::vector<Difference> found = differences(runs, options);
  std::string rows = html_row("th", {{"run"},
                                     {"state"},
                                     {"steps", "n"},
                                     {"last loss", "n"},
                                     {"best validation loss"},
                                     {"median sequences/s", "n"},
                                     {"loss beside the first run's"}});
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunView& view = runs[i].view;
    rows += html_row(
        "td",
        {{name_with_key(style_of(i), runs[i].name)},
         {escape(view.state)},
         {grouped(view.step), "n"},
         {figure_or_dash(view.loss, "{:.4f}"), "n"},
         {escape(best_validations(*runs[i].files)), "x"},
         {figure_or_dash(median_throughput(runs[i].files->records()), "{:.4g}"), "n"},
         {i == 0 ? "–" : escape(describe(found[i], options.rtol)), "x"}});
  }
  return "<section class=\"card\">" + html_table(rows) + "</section>";
}

/// Returns how many columns each curve keeps, so that many runs make no huge page.
size_t kept_of(const std::vector<ReportRun>& runs) {
  return std::clamp<size_t>(6000 / runs.size(), 300, 1000);
}

std::string card_of(const std::vector<ReportRun>& runs, const PlotOptions& options,
                    double run::StepRecord::* member) {
  std::vector<Curve> curves;
  for (size_t i = 0; i < runs.size(); ++i) {
    curves.push_back(
        {runs[i].name, style_of(i), series_if_any(runs[i].files->records(), member)});
  }
  return plot_card(options, curves, {});
}

/// Draws a plot for each validation set, so that a colour stands for a run.
std::string validation_cards(const std::vector<ReportRun>& runs) {
  std::map<std::string, std::vector<Curve>> sets;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const SetChange& set : set_changes(*runs[i].files)) {
      sets[set.name].push_back({runs[i].name, style_of(i), points_of(set), true});
    }
  }
  std::string out;
  size_t drawn = 0;
  for (const auto& [name, curves] : sets) {
    if (drawn++ == kMostSetCards) break;
    out +=
        plot_card({"Validation loss, " + name, Unit::Number, Scale::Auto, kept_of(runs)},
                  curves, {});
  }
  return out;
}

/// Draws a plot for the first metric of each task.
std::string runs_task_cards(const std::vector<ReportRun>& runs) {
  std::map<std::string, std::vector<Curve>> tasks;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const TaskCourse& task : task_courses(*runs[i].files)) {
      const std::string& metric = task.records.rbegin()->second.figures.front().name;
      tasks[task.name + ", " + metric].push_back(
          {runs[i].name, style_of(i), points_of(task), true});
    }
  }
  std::string out;
  size_t drawn = 0;
  for (const auto& [name, curves] : tasks) {
    if (drawn++ == kMostSetCards) break;
    out +=
        plot_card({"Task " + name, Unit::Number, Scale::Auto, kept_of(runs)}, curves, {});
  }
  return out;
}

}  // namespace

std::vector<ReportRun> open_runs(const std::vector<std::string>& dirs, double now) {
  if (dirs.size() > kMostRuns) {
    fail_input("report", "{} runs for one page, which shows at most {}; leave some out",
               dirs.size(), kMostRuns);
  }
  std::map<fs::path, std::string> seen;
  std::vector<ReportRun> runs;
  for (const std::string& dir : dirs) {
    ReportRun run{"", std::make_unique<RunFiles>(dir), {}};
    const auto [other, fresh] = seen.try_emplace(fs::canonical(dir), dir);
    if (!fresh) {
      fail_input("report", "{} and {} are the same directory; name each run once",
                 other->second, dir);
    }
    run.files->refresh();
    if (run.files->records().last() == nullptr) {
      fail_input("report",
                 "{} has no record of a step in {} to compare; leave the run out, or "
                 "see it alone with longhaul report {}",
                 dir, run::kMetricsFile, dir);
    }
    run.view = make_view(*run.files, now);
    runs.push_back(std::move(run));
  }
  name_runs(runs);
  return runs;
}

std::string runs_page(const std::vector<ReportRun>& runs, const AgainstOptions& options,
                      const std::string& program) {
  std::string title;
  std::string body =
      fmt::format("<header><h1>{} runs</h1><div class=\"where\">", runs.size());
  for (const ReportRun& run : runs) {
    title += (title.empty() ? "" : ", ") + run.name;
    body += escape(run.view.name) + "<br/>";
  }
  std::vector<std::string> styles;
  for (size_t i = 0; i < runs.size(); ++i) styles.push_back(style_of(i));
  body += "</div></header>" + runs_table(runs, options) + tree_card(runs, styles);
  std::string cards;
  const auto card = [&](PlotOptions plot, double run::StepRecord::* member) {
    plot.kept = kept_of(runs);
    cards += card_of(runs, plot, member);
  };
  using run::StepRecord;
  card({"Training loss"}, &StepRecord::loss);
  cards += validation_cards(runs) + runs_task_cards(runs);
  card({"Learning rate", Unit::Number, Scale::FromZero}, &StepRecord::lr);
  card({"Gradient norm"}, &StepRecord::grad_norm);
  card({"Throughput, tokens per second", Unit::Number, Scale::FromZero},
       &StepRecord::tokens_per_s);
  body += plots_section(cards);
  for (const ReportRun& run : runs) {
    for (const std::string& note : run.view.notes) {
      body += fmt::format("<p class=\"note\">{}: {}</p>", escape(run.name), escape(note));
    }
  }
  return report_frame(title, body, program, runs[0].view.now);
}

Json runs_json(std::vector<ReportRun>& runs, const AgainstOptions& options) {
  const std::vector<Difference> found = differences(runs, options);
  const std::vector<std::optional<Parent>> parents = parents_of(runs);
  Json all = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    Json one = report_json(*runs[i].files, runs[i].view);
    one["name"] = runs[i].name;
    if (parents[i]) {
      one["began_from"] = run::event_fields(parents[i]->branch);
      if (parents[i]->run) one["began_from"]["name"] = runs[*parents[i]->run].name;
    }
    one["against_first"] = found[i].json;
    if (!found[i].problem.empty()) one["against_first_problem"] = found[i].problem;
    all.push_back(std::move(one));
  }
  return {{"runs", std::move(all)}};
}

}  // namespace longhaul::monitor
