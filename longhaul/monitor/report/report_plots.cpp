#include "longhaul/monitor/report/report_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/monitor/html.h"
#include "longhaul/monitor/report/report_experts.h"
#include "longhaul/monitor/report/report_tasks.h"
#include "longhaul/monitor/run_view.h"
#include "longhaul/run/events.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kMostSets = 4;
constexpr std::array<const char*, kMostSets> kSetStyles = {"b", "c", "d", "e"};

std::vector<Curve> validation_curves(const std::vector<SetChange>& sets) {
  std::vector<Curve> curves;
  for (const SetChange& set : sets) {
    if (curves.size() == kMostSets) break;
    curves.push_back(
        {"validation " + set.name, kSetStyles[curves.size()], points_of(set), true});
  }
  return curves;
}

/// Shows what the run has learned and forgotten: every set's loss above the loss of its
/// first validation, with dashed curves for old domains. Returns nothing if there is
/// nothing to compare.
std::string forgetting_card(const std::vector<SetChange>& sets) {
  const auto compares = [](const SetChange& set) { return set.losses.size() > 1; };
  if (std::ranges::none_of(sets, compares)) return "";
  std::vector<Curve> curves;
  std::string words;
  for (const SetChange& set : sets) {
    Curve curve{set.stop_above ? set.name + " (old)" : set.name,
                kSetStyles[curves.size() % kMostSets], points_of(set), true};
    if (set.stop_above) curve.style += " old";
    for (Point& point : curve.points) point.y = set.since_first(point.y);
    curves.push_back(std::move(curve));
    words += fmt::format("<p>{}</p>", escape(set.describe()));
  }
  const PlotOptions options{"Validation since its start, nats", Unit::Number,
                            Scale::Auto};
  return plot_card(options, curves, {}, words);
}

/// Shows the gradient norms of the embedding, of four layers and of the head, and which
/// layer had the largest norm at the end. Returns nothing if the run has no such events.
std::string layer_norms_card(const RunFiles& run, const std::vector<PlotMark>& marks) {
  std::vector<run::LayerNormsEvent> told;
  for (const Event& event : run.events()) {
    if (event.kind != run::LayerNormsEvent::kKind) continue;
    auto norms = event.as<run::LayerNormsEvent>();
    // If a step was done again, only its last event counts.
    while (!told.empty() && told.back().step >= norms.step) told.pop_back();
    if (!norms.layers.empty()) told.push_back(std::move(norms));
  }
  if (told.empty()) return "";
  const std::vector<double>& newest = told.back().layers;
  const size_t last = newest.size() - 1;
  const std::set<size_t> shown = {0, last / 3, 2 * last / 3, last};
  std::vector<Curve> curves = {{"embedding", "g", {}}, {"head", "f", {}}};
  for (const size_t layer : shown) {
    curves.push_back({fmt::format("layer {}", layer), kSetStyles[curves.size() - 2], {}});
  }
  for (const run::LayerNormsEvent& norms : told) {
    const auto add = [&](Curve& curve, double value) {
      curve.points.push_back({static_cast<double>(norms.step), value});
    };
    add(curves[0], norms.embedding);
    add(curves[1], norms.head);
    size_t at = 2;
    for (const size_t layer : shown) {
      add(curves[at++],
          layer < norms.layers.size() ? norms.layers[layer] : run::kNoFigure);
    }
  }
  const auto largest = std::ranges::max_element(newest);
  return plot_card({"Gradient norm by layer"}, curves, marks,
                   fmt::format("<p>At step {} the largest of {} layers was layer {}: "
                               "{:.4g}.</p>",
                               grouped(told.back().step), newest.size(),
                               largest - newest.begin(), *largest));
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

std::vector<Point> points_of(const SetChange& set) {
  std::vector<Point> points;
  for (const auto& [step, loss] : set.losses) {
    points.push_back({static_cast<double>(step), loss});
  }
  return points;
}

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

std::string pair_cards(const RunFiles& run, const std::vector<PlotMark>& marks) {
  const Records& records = run.records();
  std::vector<Curve> rewards = {
      {"chosen", "b", series_if_any(records, &run::StepRecord::rewards_chosen)},
      {"rejected", "c", series_if_any(records, &run::StepRecord::rewards_rejected)},
      {"margin", "a", series_if_any(records, &run::StepRecord::rewards_margins)}};
  if (rewards.front().points.empty()) return "";
  return plot_card({"Rewards"}, rewards, marks) +
         plot_card({"Pairs with a positive margin", Unit::Percent, Scale::FromZero},
                   {{"", "a", series(records, &run::StepRecord::rewards_accuracies)}},
                   marks) +
         plot_card({"Log-probabilities of answers"},
                   {{"chosen", "b", series(records, &run::StepRecord::logps_chosen)},
                    {"rejected", "c", series(records, &run::StepRecord::logps_rejected)}},
                   marks);
}

std::string plot_cards(const RunFiles& run) {
  const Records& records = run.records();
  const std::vector<PlotMark> marks = marks_of(run);
  std::vector<Curve> loss = {{"training", "a", series(records, &run::StepRecord::loss)}};
  const std::vector<SetChange> sets = set_changes(run);
  for (Curve& curve : validation_curves(sets)) loss.push_back(std::move(curve));
  std::string out =
      plot_card({"Loss"}, loss, marks) + forgetting_card(sets) + task_cards(run, marks);
  const auto one = [&](const char* title, double run::StepRecord::* member, Unit unit,
                       Scale scale) {
    out += plot_card({title, unit, scale}, {{"", "a", series_if_any(records, member)}},
                     marks);
  };
  out += pair_cards(run, marks);
  out += plot_card({"Gradient norm"},
                   {{"", "a", series(records, &run::StepRecord::grad_norm)}}, marks);
  out += layer_norms_card(run, marks);
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
  // Mapped files have a curve of their own. While a mapped token store is read, more and
  // more of its pages are in memory, which is no leak.
  add("host, rank 0: anonymous", "c", &run::StepRecord::host_anonymous);
  add("host, rank 0: mapped files", "d", &run::StepRecord::host_file);
  out += plot_card({"Memory", Unit::Bytes, Scale::FromZero}, memory, marks);
  return out + expert_cards(run, marks);
}

}  // namespace longhaul::monitor
