#include "longhaul/plan/machine.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "longhaul/base/error.h"

namespace longhaul::plan {
namespace {

/// Returns the median of the measured rates whose name begins with `begin`; 0 without
/// one.
double measured(const HardwareProfile& profile, std::string_view begin) {
  std::vector<double> found;
  for (const MeasuredRate& rate : profile.rates) {
    if (rate.name.starts_with(begin)) found.push_back(rate.median);
  }
  if (found.empty()) return 0.0;
  std::ranges::sort(found);
  return found[found.size() / 2];
}

double first_known(std::initializer_list<double> rates) {
  for (const double rate : rates) {
    if (rate > 0.0) return rate;
  }
  return 0.0;
}

/// Returns how many messages follow each other in one operation.
double steps_of(layout::Verb verb, double others) {
  switch (verb) {
    case layout::Verb::SendRecv:
    case layout::Verb::AllToAll:
      return 1.0;
    case layout::Verb::AllReduce:
      return 2.0 * others;
    case layout::Verb::AllGather:
    case layout::Verb::ReduceScatter:
    case layout::Verb::Broadcast:
    case layout::Verb::Barrier:
      return others;
  }
  LH_ASSERT(false, "a verb that is not known: {}", static_cast<int>(verb));
}

/// Returns the measurement of a line's operation over such a group; null without one.
const ExchangeProfile* measured(const Machine& machine, const GroupSpread& group,
                                const layout::TrafficLine& line) {
  const auto found =
      std::ranges::find_if(machine.exchanges, [&](const ExchangeProfile& one) {
        return one.operation == layout::operation_name(line) &&
               one.ranks == group.ranks && one.on_node == group.on_node;
      });
  return found == machine.exchanges.end() ? nullptr : &*found;
}

}  // namespace

double Machine::grouped(double rows) const {
  if (grouped_rates.empty()) return products;
  const auto above =
      std::ranges::lower_bound(grouped_rates, rows, {}, &GroupedRate::rows);
  if (above == grouped_rates.begin()) return above->rate;
  const GroupedRate& below = *std::prev(above);
  if (above == grouped_rates.end()) return below.rate;
  const double share = std::log(rows / below.rows) / std::log(above->rows / below.rows);
  return std::lerp(below.rate, above->rate, share);
}

Machine machine_of(const HardwareProfile& profile, std::string_view name, bool bf16,
                   int64_t ranks, int64_t node_ranks) {
  const double peak = bf16 ? profile.peak_bf16 : profile.peak_fp32;
  const EfficiencyProfile& share = profile.efficiency;
  Machine machine;
  machine.peak = peak;
  machine.products = first_known(
      {measured(profile, bf16 ? "product bf16" : "product fp32"), peak * share.products});
  // The measurement counts seven products: the backward computes the scores again. A step
  // counts six, as FlopsPerToken does.
  const double attention =
      measured(profile, bf16 ? "attention and backward" : "attention fp32 and backward") *
      6.0 / 7.0;
  machine.attention = first_known({attention, peak * share.attention});
  machine.memory = first_known(
      {measured(profile, "copy through memory"), profile.peak_memory * share.memory});
  machine.node_ranks = node_ranks;
  machine.inside = profile.inside;
  machine.between = profile.between;
  machine.exchanges = profile.exchanges;
  for (const int64_t rows : kGroupedRows) {
    const MeasuredRate* rate = profile.find(grouped_product_name(bf16, rows));
    if (rate == nullptr) continue;
    machine.grouped_rates.push_back({static_cast<double>(rows), rate->median});
  }
  const auto need = [&](bool there, std::string_view what, std::string_view add) {
    if (there) return;
    fail_config("hardware", "{} has no {}; add {}", name, what, add);
  };
  need(
      machine.products > 0.0,
      bf16 ? "rate of products in bf16" : "rate of products in fp32",
      "peak." + std::string(bf16 ? "bf16" : "fp32") +
          " in FLOP/s and efficiency.products, or measure it: longhaul bench --out FILE");
  need(machine.attention > 0.0, "rate of attention",
       "efficiency.attention, or measure it: longhaul bench --out FILE");
  need(machine.memory > 0.0, "rate of its memory",
       "peak.memory in B/s and efficiency.memory, or measure it: longhaul bench --out "
       "FILE");
  need(ranks <= 1 || node_ranks <= 1 || machine.inside.bytes_per_s > 0.0,
       "link between the ranks of a node", "[inside] with bytes_per_s and latency_s");
  need(ranks <= node_ranks || machine.between.bytes_per_s > 0.0, "link between nodes",
       "[between] with bytes_per_s and latency_s, of one rank");
  return machine;
}

GroupSpread spread_of(const layout::Groups& groups, layout::GroupKind kind, int rank,
                      int64_t node_ranks) {
  const std::vector<int> members = groups.members(kind, rank);
  const int64_t node = rank / node_ranks;
  const auto here = std::ranges::count_if(
      members, [&](int member) { return member / node_ranks == node; });
  return {static_cast<int64_t>(members.size()), here};
}

double seconds_of(const Machine& machine, const GroupSpread& group,
                  const layout::TrafficLine& line) {
  if (group.ranks <= 1 || line.calls == 0) return 0.0;
  const auto bytes = static_cast<double>(line.bytes);
  const auto calls = static_cast<double>(line.calls);
  if (const ExchangeProfile* exchange = measured(machine, group, line)) {
    return bytes / exchange->link.bytes_per_s + calls * exchange->link.latency_s;
  }
  const bool direct = line.kind == layout::TrafficKind::Experts;
  const bool leaves = group.on_node < group.ranks;
  const auto others = static_cast<double>(group.ranks - 1);
  const double out = !leaves  ? 0.0
                     : direct ? (others - static_cast<double>(group.on_node - 1)) / others
                              : 1.0 / static_cast<double>(group.on_node);
  const double in = group.on_node == 1 ? 0.0 : direct ? 1.0 - out : 1.0;
  double seconds = 0.0;
  if (in > 0.0) seconds = bytes * in / machine.inside.bytes_per_s;
  if (out > 0.0) seconds = std::max(seconds, bytes * out / machine.between.bytes_per_s);
  const double latency = (leaves ? machine.between : machine.inside).latency_s;
  return seconds + calls * steps_of(line.verb, others) * latency;
}

}  // namespace longhaul::plan
