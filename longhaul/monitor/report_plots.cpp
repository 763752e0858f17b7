#include "longhaul/monitor/report_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "longhaul/monitor/plot.h"
#include "longhaul/monitor/run_view.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kMostSets = 4;

std::vector<Point> series(const Records& records, double StepRecord::* member) {
  std::vector<Point> points;
  points.reserve(records.counted().size());
  for (const size_t at : records.counted()) {
    const StepRecord& record = records.all()[at];
    points.push_back({static_cast<double>(record.step), record.*member});
  }
  return points;
}

/// A member that no line has is no curve of points that are not finite.
std::vector<Point> series_if_any(const Records& records, double StepRecord::* member) {
  std::vector<Point> points = series(records, member);
  const bool any =
      std::ranges::any_of(points, [](const Point& p) { return std::isfinite(p.y); });
  return any ? points : std::vector<Point>{};
}

/// The last value of each step, by set; a validation of a step that was taken back is
/// replaced when that step is done again.
std::vector<Curve> validation_curves(const Records& records) {
  constexpr std::array<const char*, kMostSets> kStyles = {"b", "c", "d", "e"};
  std::map<std::string, std::map<int64_t, double>> sets;
  for (const ValidationRecord& v : records.validations()) {
    if (sets.size() >= kMostSets && !sets.contains(v.name)) continue;
    sets[v.name][v.step] = v.loss;
  }
  std::vector<Curve> curves;
  for (const auto& [name, by_step] : sets) {
    Curve curve{"validation " + name, kStyles[curves.size()], {}, true};
    for (const auto& [step, loss] : by_step) {
      curve.points.push_back({static_cast<double>(step), loss});
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

std::vector<PlotMark> marks_of(const RunFiles& run) {
  std::vector<PlotMark> marks;
  bool first = true;
  for (const Event& event : run.events()) {
    const auto mark = [&](int64_t step, const char* style, const char* what) {
      marks.push_back({static_cast<double>(step), style, what + describe(event)});
    };
    if (event.kind == StartEvent::kKind) {
      if (!first) mark(event.as<StartEvent>().step, "restarted", "restart: ");
      first = false;
    } else if (event.kind == BadStepEvent::kKind) {
      mark(event.as<BadStepEvent>().step, "bad", "bad step: ");
    } else if (event.kind == RollbackEvent::kKind) {
      mark(event.as<RollbackEvent>().to_step, "bad", "rollback: ");
    }
  }
  return marks;
}

std::string card(const PlotOptions& options, const std::vector<Curve>& curves,
                 const std::vector<PlotMark>& marks) {
  return fmt::format("<section class=\"card\"><h3>{}</h3>{}</section>",
                     escape(options.title), draw_plot(options, curves, marks));
}

}  // namespace

std::string plot_cards(const RunFiles& run) {
  const Records& records = run.records();
  const std::vector<PlotMark> marks = marks_of(run);
  std::vector<Curve> loss = {{"training", "a", series(records, &StepRecord::loss)}};
  for (Curve& curve : validation_curves(records)) loss.push_back(std::move(curve));
  std::string out = card({"Loss"}, loss, marks);
  const auto one = [&](const char* title, double StepRecord::* member, Unit unit,
                       Scale scale) {
    out += card({title, unit, scale}, {{"", "a", series_if_any(records, member)}}, marks);
  };
  out += card({"Gradient norm"}, {{"", "a", series(records, &StepRecord::grad_norm)}},
              marks);
  one("Learning rate", &StepRecord::lr, Unit::Number, Scale::FromZero);
  one("Throughput, tokens per second", &StepRecord::tokens_per_s, Unit::Number,
      Scale::FromZero);
  one("Model FLOPs utilisation", &StepRecord::mfu, Unit::Percent, Scale::FromZero);
  out +=
      card({"Memory", Unit::Bytes, Scale::FromZero},
           {{"largest of a rank", "a", series_if_any(records, &StepRecord::memory_peak)},
            {"host, rank 0", "b", series_if_any(records, &StepRecord::host_memory)}},
           marks);
  return out;
}

}  // namespace longhaul::monitor
