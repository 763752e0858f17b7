#include "longhaul/measure/figures.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::measure {
namespace {

double rate_of(const Probe& probe, double seconds) {
  const system::Stopwatch watch;
  double runs = 0.0;
  do {
    probe.run();
    ++runs;
  } while (probe.runs > 0 ? runs < probe.runs : watch.seconds() < seconds);
  return runs * probe.work / watch.seconds();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<MeasuredRate> measure(const std::vector<Probe>& probes,
                                  const Rounds& rounds) {
  LH_CHECK(!probes.empty() && rounds.count > 0, "bench", "{} probes in {} rounds",
           probes.size(), rounds.count);
  const size_t total = probes.size() * static_cast<size_t>(rounds.count + 1);
  size_t done = 0;
  std::vector<std::vector<double>> rates(probes.size());
  for (int round = -1; round < rounds.count; ++round) {
    for (size_t i = 0; i < probes.size(); ++i) {
      const double rate = rate_of(probes[i], round < 0 ? 0.0 : rounds.seconds_each);
      if (round >= 0) rates[i].push_back(rate);
      if (rounds.progress) rounds.progress(++done, total);
    }
  }
  std::vector<MeasuredRate> figures;
  for (size_t i = 0; i < probes.size(); ++i) {
    std::vector<double> ratios;
    for (size_t round = 0; round < rates[i].size(); ++round) {
      ratios.push_back(rates[i][round] / rates[0][round]);
    }
    const auto [low, high] = std::ranges::minmax(rates[i]);
    figures.push_back({probes[i].name, probes[i].unit, median(rates[i]), low, high,
                       median(std::move(ratios))});
  }
  return figures;
}

}  // namespace longhaul::measure
