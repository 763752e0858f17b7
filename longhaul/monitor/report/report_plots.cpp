#include "longhaul/monitor/report/report_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "longhaul/monitor/html.h"
#include "longhaul/monitor/plot.h"
#include "longhaul/monitor/run_view.h"
#include "longhaul/monitor/set_changes.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kMostSets = 4;
constexpr std::array<const char*, kMostSets> kSetStyles = {"b", "c", "d", "e"};

std::vector<Curve> validation_curves(const std::vector<SetChange>& sets) {
  std::vector<Curve> curves;
  for (const SetChange& set : sets) {
    if (curves.size() == kMostSets) break;
    Curve curve{"validation " + set.name, kSetStyles[curves.size()], {}, true};
    for (const auto& [step, loss] : set.losses) {
      curve.points.push_back({static_cast<double>(step), loss});
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

/// Shows what the run has learned and forgotten: every set's loss above the loss of its
/// first validation, with dashed curves for old domains. Returns nothing where there is
/// nothing to compare.
std::string forgetting_card(const std::vector<SetChange>& sets) {
  const auto compares = [](const SetChange& set) { return set.losses.size() > 1; };
  if (std::ranges::none_of(sets, compares)) return "";
  std::vector<Curve> curves;
  std::string words;
  for (const SetChange& set : sets) {
    Curve curve{set.stop_above ? set.name + " (old)" : set.name,
                kSetStyles[curves.size() % kMostSets],
                {},
                true};
    if (set.stop_above) curve.style += " old";
    for (const auto& [step, loss] : set.losses) {
      curve.points.push_back({static_cast<double>(step), set.since_first(loss)});
    }
    curves.push_back(std::move(curve));
    words += fmt::format("<p>{}</p>", escape(set.describe()));
  }
  const PlotOptions options{"Validation since its start, nats", Unit::Number,
                            Scale::Auto};
  return plot_card(options, curves, {}, words);
}

std::vector<PlotMark> marks_of(const RunFiles& run) {
  std::vector<PlotMark> marks;
  bool first = true;
  for (const Event& event : run.events()) {
    const auto mark = [&](int64_t step, const char* style, const char* what) {
      marks.push_back({static_cast<double>(step), style, what + describe(event)});
    };
    if (event.kind == run::StartEvent::kKind) {
      if (!first) mark(event.as<run::StartEvent>().step, "restarted", "restart: ");
      first = false;
    } else if (event.kind == run::BadStepEvent::kKind) {
      mark(event.as<run::BadStepEvent>().step, "bad", "bad step: ");
    } else if (event.kind == run::RollbackEvent::kKind) {
      mark(event.as<run::RollbackEvent>().to_step, "bad", "rollback: ");
    }
  }
  return marks;
}

}  // namespace

std::vector<Point> series(const Records& records, double run::StepRecord::* member) {
  std::vector<Point> points;
  points.reserve(records.counted().size());
  for (const size_t at : records.counted()) {
    const run::StepRecord& record = records.all()[at];
    points.push_back({static_cast<double>(record.step), record.*member});
  }
  return points;
}

std::vector<Point> series_if_any(const Records& records,
                                 double run::StepRecord::* member) {
  std::vector<Point> points = series(records, member);
  const bool any =
      std::ranges::any_of(points, [](const Point& p) { return std::isfinite(p.y); });
  return any ? points : std::vector<Point>{};
}

std::string plot_cards(const RunFiles& run) {
  const Records& records = run.records();
  const std::vector<PlotMark> marks = marks_of(run);
  std::vector<Curve> loss = {{"training", "a", series(records, &run::StepRecord::loss)}};
  const std::vector<SetChange> sets = set_changes(run);
  for (Curve& curve : validation_curves(sets)) loss.push_back(std::move(curve));
  std::string out = plot_card({"Loss"}, loss, marks) + forgetting_card(sets);
  const auto one = [&](const char* title, double run::StepRecord::* member, Unit unit,
                       Scale scale) {
    out += plot_card({title, unit, scale}, {{"", "a", series_if_any(records, member)}},
                     marks);
  };
  out += plot_card({"Gradient norm"},
                   {{"", "a", series(records, &run::StepRecord::grad_norm)}}, marks);
  one("Learning rate", &run::StepRecord::lr, Unit::Number, Scale::FromZero);
  one("Throughput, tokens per second", &run::StepRecord::tokens_per_s, Unit::Number,
      Scale::FromZero);
  one("Model FLOPs utilisation", &run::StepRecord::mfu, Unit::Percent, Scale::FromZero);
  std::vector<Curve> memory;
  const auto add = [&](const char* name, const char* style,
                       double run::StepRecord::* member) {
    std::vector<Point> points = series_if_any(records, member);
    if (!points.empty()) memory.push_back({name, style, std::move(points)});
  };
  add("largest of a rank", "a", &run::StepRecord::memory_peak);
  add("host, rank 0: all", "b", &run::StepRecord::host_memory);
  // Apart: a token store that is read grows as mapped pages, which is no leak.
  add("host, rank 0: anonymous", "c", &run::StepRecord::host_anonymous);
  add("host, rank 0: mapped files", "d", &run::StepRecord::host_file);
  out += plot_card({"Memory", Unit::Bytes, Scale::FromZero}, memory, marks);
  return out;
}

}  // namespace longhaul::monitor
