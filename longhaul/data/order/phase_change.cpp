#include "longhaul/data/order/phase_change.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul::data {
namespace {

const PhaseSource* named(const Phase& phase, const std::string& name) {
  const auto found = std::ranges::find(phase.sources, name, &PhaseSource::name);
  return found == phase.sources.end() ? nullptr : &*found;
}

bool holds(const Phase& phase, const std::string& fingerprint) {
  return std::ranges::count(phase.sources, fingerprint, &PhaseSource::fingerprint) > 0;
}

void compare_source(const Phase& before, const PhaseSource& now,
                    std::vector<PhaseChange>& out) {
  const PhaseSource* const old = named(before, now.name);
  if (old == nullptr) {
    if (holds(before, now.fingerprint)) return;  // the same data under another name
    out.push_back({fmt::format("{} is new (fingerprint {}, {} sequences)", now.name,
                               now.fingerprint, now.num_sequences)});
  } else if (old->fingerprint != now.fingerprint) {
    out.push_back({fmt::format("{} holds other data than before: its fingerprint was {} "
                               "({} sequences), is {} ({} sequences)",
                               now.name, old->fingerprint, old->num_sequences,
                               now.fingerprint, now.num_sequences),
                   true});
  } else if (old->weight != now.weight) {
    out.push_back({fmt::format("the weight of {} was {}, is {}", now.name, old->weight,
                               now.weight)});
  }
}

}  // namespace

std::vector<PhaseChange> phase_changes(const Phase& before, const Phase& now) {
  if (before.same_stream(now)) return {};
  std::vector<PhaseChange> out;
  const auto look = [&](const char* what, auto was, auto is) {
    if (was != is) out.push_back({fmt::format("{} was {}, is {}", what, was, is)});
  };
  look("the length of a sequence", before.seq_len, now.seq_len);
  look("the seed", before.seed, now.seed);
  look("shuffling", before.shuffle, now.shuffle);
  for (const PhaseSource& source : now.sources) compare_source(before, source, out);
  for (const PhaseSource& source : before.sources) {
    if (named(now, source.name) != nullptr || holds(now, source.fingerprint)) continue;
    out.push_back(
        {fmt::format("{} is gone (fingerprint {})", source.name, source.fingerprint)});
  }
  if (out.empty()) out.push_back({"the sources stand in another order"});
  return out;
}

}  // namespace longhaul::data
