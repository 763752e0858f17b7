#include "longhaul/monitor/report/report_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/monitor/heat_map.h"
#include "longhaul/monitor/report/report_plots.h"
#include "longhaul/run/events.h"

namespace longhaul::monitor {
namespace {

using LayerLoads = run::ExpertLoadsEvent::Layer;

// Limits of what is drawn: a page must not grow with the run, nor much with the model.
constexpr size_t kMostMaps = 16;
constexpr size_t kLeastMaps = 4;
constexpr size_t kMostMapRows = 1024;  ///< of all maps, where these are not the fewest
constexpr size_t kMostMapColumns = 200;
constexpr size_t kMostMapCells = 100'000;
/// A layer with more experts is not believed: anybody may have written the event.
constexpr size_t kMostExperts = 4096;

/// Returns how many times a token was sent to an expert of the layer; 0 if there is
/// nothing to draw.
double choices_of(const LayerLoads& loads) {
  if (loads.counts.size() > kMostExperts) return 0.0;
  double sum = 0.0;
  for (const int64_t count : loads.counts) {
    sum += static_cast<double>(std::max<int64_t>(0, count));
  }
  return sum;
}

/// Returns the events with loads that count, by ascending step.
std::vector<std::pair<int64_t, const Event*>> loads_told(const RunFiles& run) {
  std::vector<std::pair<int64_t, const Event*>> told;
  for (const Event& event : run.events()) {
    if (event.kind != run::ExpertLoadsEvent::kKind) continue;
    const auto loads = event.as<run::ExpertLoadsEvent>();
    // If a step was done again, only its last event counts.
    while (!told.empty() && told.back().first >= loads.step) told.pop_back();
    if (!loads.layers.empty()) told.emplace_back(loads.step, &event);
  }
  return told;
}

/// The map of a layer while the events are read: a column has the mean of its events.
struct LayerMap {
  int64_t layer = 0;
  HeatMap map;
  std::vector<double> seen;  ///< number of events in each column

  void add(const LayerLoads& loads, size_t column) {
    const double choices = choices_of(loads);
    if (loads.counts.size() != map.rows || !(choices > 0.0)) return;
    seen[column] += 1.0;
    for (size_t expert = 0; expert < map.rows; ++expert) {
      const auto count = static_cast<double>(std::max<int64_t>(0, loads.counts[expert]));
      double& mean = map.values[expert * seen.size() + column];
      const double share = count * static_cast<double>(map.rows) / choices;
      mean = seen[column] > 1.0 ? mean + (share - mean) / seen[column] : share;
    }
  }
  /// Fills a column without an event with the values of the column before.
  void hold(size_t column) {
    if (seen[column] > 0.0) return;
    for (size_t expert = 0; expert < map.rows; ++expert) {
      double* const row = map.values.data() + expert * seen.size();
      row[column] = row[column - 1];
    }
  }
};

/// Chooses layers evenly among those of an event, and begins their maps.
std::vector<LayerMap> choose_layers(const std::vector<LayerLoads>& layers,
                                    size_t events) {
  size_t most_experts = 1;
  for (const LayerLoads& loads : layers) {
    most_experts = std::max(most_experts, loads.counts.size());
  }
  const size_t shown = std::min(
      layers.size(), std::clamp(kMostMapRows / most_experts, kLeastMaps, kMostMaps));
  const size_t columns = std::clamp<size_t>(kMostMapCells / (shown * most_experts), 1,
                                            std::min(events, kMostMapColumns));
  std::vector<LayerMap> maps;
  for (size_t i = 0; i < shown; ++i) {
    const LayerLoads& loads =
        layers[shown > 1 ? i * (layers.size() - 1) / (shown - 1) : 0];
    LayerMap one;
    one.layer = loads.layer;
    one.map.title = fmt::format("layer {}: {:.1f} of {} in use", loads.layer,
                                loads.effective, loads.counts.size());
    one.map.rows = loads.counts.size();
    one.map.steps.assign(columns, run::kNoFigure);
    one.map.values.assign(one.map.rows * columns, run::kNoFigure);
    one.seen.assign(columns, 0.0);
    maps.push_back(std::move(one));
  }
  return maps;
}

/// Puts the loads of all events into the maps; columns are equal parts of the steps.
void fill_maps(const std::vector<std::pair<int64_t, const Event*>>& told,
               std::vector<LayerMap>& maps) {
  const auto first = static_cast<double>(told.front().first);
  const auto last = static_cast<double>(told.back().first);
  const size_t columns = maps.front().seen.size();
  for (const auto& [at, event] : told) {
    const auto step = static_cast<double>(at);
    const double place = last > first ? (step - first) / (last - first) : 0.0;
    const size_t column =
        std::min(columns - 1, static_cast<size_t>(place * static_cast<double>(columns)));
    const auto loads = event->as<run::ExpertLoadsEvent>();
    for (LayerMap& one : maps) {
      double& begin = one.map.steps[column];
      begin = std::fmin(begin, step);
      const auto found = std::ranges::find(loads.layers, one.layer, &LayerLoads::layer);
      if (found != loads.layers.end()) one.add(*found, column);
    }
  }
  for (LayerMap& one : maps) {
    one.map.last = last;
    for (size_t column = 1; column < columns; ++column) {
      one.hold(column);
      double& begin = one.map.steps[column];
      if (std::isnan(begin)) begin = one.map.steps[column - 1];
    }
  }
}

std::string loads_card(const RunFiles& run) {
  const auto told = loads_told(run);
  if (told.empty()) return "";
  std::vector<LayerLoads> layers = told.back().second->as<run::ExpertLoadsEvent>().layers;
  std::erase_if(layers, [](const LayerLoads& one) { return !(choices_of(one) > 0.0); });
  if (layers.empty()) return "";
  std::vector<LayerMap> maps = choose_layers(layers, told.size());
  fill_maps(told, maps);
  const auto& least = *std::ranges::min_element(layers, {}, [](const LayerLoads& one) {
    return one.effective / static_cast<double>(one.counts.size());
  });
  std::string card = fmt::format(
      "<section class=\"card wide\"><h3>Loads of experts</h3><p>A row is an expert, the "
      "first on top. The colour says what the expert got, as a multiple of an even "
      "share. At step {} layer {} used least of its experts: {:.2f} of {}.{}</p>",
      grouped(told.back().first), least.layer, least.effective, least.counts.size(),
      maps.size() < layers.size()
          ? fmt::format(" {} of {} layers are shown, evenly chosen.", maps.size(),
                        layers.size())
          : "");
  card += heat_legend() + "<div class=\"maps\">";
  for (const LayerMap& one : maps) card += heat_panel(one.map);
  return card + "</div></section>";
}

}  // namespace

std::string expert_cards(const RunFiles& run, const std::vector<PlotMark>& marks) {
  std::string out;
  const auto one = [&](const char* title, Unit unit, double run::StepRecord::* member) {
    std::vector<Point> points = series_if_any(run.records(), member);
    if (points.empty()) return;
    out +=
        plot_card({title, unit, Scale::FromZero}, {{"", "a", std::move(points)}}, marks);
  };
  one("Experts in use, in the layer with least", Unit::Percent,
      &run::StepRecord::expert_use);
  one("Entropy of the router, nats", Unit::Number, &run::StepRecord::router_entropy);
  return out + loads_card(run);
}

}  // namespace longhaul::monitor
