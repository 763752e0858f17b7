#include "longhaul/data/order/cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr size_t kMaxEntries = 1'000'000;

template <typename Value>
Value field(const Json& object, const char* name) {
  try {
    return object.at(name).get<Value>();
  } catch (const Json::exception& error) {
    throw InputError("data",
                     fmt::format("the stored data position is damaged: field '{}': "
                                 "{}; choose another checkpoint",
                                 name, error.what()));
  }
}

void require(bool condition, const char* what) {
  if (condition) return;
  throw InputError("data", fmt::format("the stored data position is damaged: {}; choose "
                                       "another checkpoint",
                                       what));
}

/// Ascending and disjoint again.
std::vector<SequenceRange> merged(std::vector<SequenceRange> ranges) {
  std::ranges::sort(ranges, {}, &SequenceRange::begin);
  std::vector<SequenceRange> out;
  for (const SequenceRange& range : ranges) {
    if (range.begin >= range.end) continue;
    if (!out.empty() && range.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, range.end);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

/// Places in the phase's stream from the first to the last of the last `count` sequences
/// that it handed out; what it passed over between them is inside.
SequenceRange last_of(const Phase& phase, int64_t count) {
  return {phase.stream_position(phase.consumed - count),
          phase.stream_position(phase.consumed - 1) + 1};
}

Json phase_to_json(const Phase& phase) {
  Json sources = Json::array();
  for (const PhaseSource& source : phase.sources) {
    sources.push_back({{"fingerprint", source.fingerprint},
                       {"weight", source.weight},
                       {"num_sequences", source.num_sequences},
                       {"name", source.name}});
  }
  Json skipped = Json::array();
  for (const SequenceRange& range : phase.skipped) {
    skipped.push_back({range.begin, range.end});
  }
  return {{"seq_len", phase.seq_len},   {"shuffle", phase.shuffle},
          {"seed", phase.seed},         {"sources", std::move(sources)},
          {"consumed", phase.consumed}, {"skipped", std::move(skipped)}};
}

Phase phase_from_json(const Json& json) {
  Phase phase;
  phase.seq_len = field<int64_t>(json, "seq_len");
  phase.shuffle = field<bool>(json, "shuffle");
  phase.seed = field<uint64_t>(json, "seed");
  phase.consumed = field<int64_t>(json, "consumed");
  require(phase.seq_len > 0, "seq_len is not positive");
  require(phase.consumed >= 0 && phase.consumed <= (int64_t{1} << 61),
          "consumed is out of range");
  const Json sources = field<Json>(json, "sources");
  require(sources.is_array() && !sources.empty() && sources.size() <= kMaxEntries,
          "sources is not a list of sources");
  for (const Json& source : sources) {
    PhaseSource& added = phase.sources.emplace_back();
    added.fingerprint = field<std::string>(source, "fingerprint");
    added.weight = field<double>(source, "weight");
    added.num_sequences = field<int64_t>(source, "num_sequences");
    added.name = field<std::string>(source, "name");
    require(std::isfinite(added.weight) && added.weight >= 0, "a weight is negative");
    require(added.num_sequences > 0, "a source has no sequences");
  }
  const Json skipped = field<Json>(json, "skipped");
  require(skipped.is_array() && skipped.size() <= kMaxEntries, "skipped is not a list");
  int64_t end = 0;
  for (const Json& range : skipped) {
    require(range.is_array() && range.size() == 2 && range[0].is_number_integer() &&
                range[1].is_number_integer(),
            "a skipped range is not a pair of integers");
    phase.skipped.push_back({range[0].get<int64_t>(), range[1].get<int64_t>()});
    require(phase.skipped.back().begin >= end &&
                phase.skipped.back().end >= phase.skipped.back().begin &&
                phase.skipped.back().end <= (int64_t{1} << 61),
            "skipped ranges are not ascending");
    end = phase.skipped.back().end;
  }
  return phase;
}

std::vector<LaterRange> later_from_json(const Json& json) {
  constexpr int64_t kEnd = int64_t{1} << 61;
  require(json.is_array() && json.size() <= kMaxEntries, "later is not a list");
  std::vector<LaterRange> later;
  for (const Json& item : json) {
    require(item.is_array() && item.size() == 3 && item[0].is_number_integer() &&
                item[1].is_number_integer() && item[2].is_number_integer(),
            "a range of later is not three integers");
    const LaterRange skip{item[0].get<int64_t>(),
                          {item[1].get<int64_t>(), item[2].get<int64_t>()}};
    require(skip.phase >= 0 && skip.range.begin >= 0 &&
                skip.range.end >= skip.range.begin && skip.range.end <= kEnd,
            "a range of later is out of range");
    later.push_back(skip);
  }
  return later;
}

}  // namespace

bool Phase::same_stream(const Phase& other) const {
  return seq_len == other.seq_len && shuffle == other.shuffle && seed == other.seed &&
         sources == other.sources;
}

int64_t Phase::stream_position(int64_t n) const {
  for (const SequenceRange& range : skipped) {
    if (n < range.begin) break;
    n += range.end - range.begin;
  }
  return n;
}

int64_t Cursor::sequences() const {
  int64_t sum = 0;
  for (const Phase& phase : phases) sum += phase.consumed;
  return sum;
}

int64_t Cursor::tokens() const {
  int64_t sum = 0;
  for (const Phase& phase : phases) sum += phase.consumed * phase.seq_len;
  return sum;
}

void Cursor::begin_phase(Phase phase) {
  const auto number = static_cast<int64_t>(phases.size());
  for (const LaterRange& skip : later) {
    if (skip.phase == number) phase.skipped.push_back(skip.range);
  }
  phase.skipped = merged(std::move(phase.skipped));
  std::erase_if(later, [&](const LaterRange& skip) { return skip.phase <= number; });
  phases.push_back(std::move(phase));
}

void Cursor::pass_over_last(const Cursor& now, int64_t sequences) {
  std::vector<LaterRange> all = now.later;
  for (size_t i = now.phases.size(); i-- > 0;) {
    const Phase& phase = now.phases[i];
    const auto number = static_cast<int64_t>(i);
    for (const SequenceRange& range : phase.skipped) all.push_back({number, range});
    const int64_t count = std::min(sequences, phase.consumed);
    sequences -= count;
    if (count > 0) all.push_back({number, last_of(phase, count)});
  }
  later.clear();
  const int64_t current = static_cast<int64_t>(phases.size()) - 1;
  for (const LaterRange& skip : all) {
    if (skip.phase > current) later.push_back(skip);
  }
  if (phases.empty()) return;
  Phase& phase = phases.back();
  // A range before it would move the places of what was handed out.
  const int64_t position = phase.stream_position(phase.consumed);
  for (const LaterRange& skip : all) {
    if (skip.phase != current) continue;
    phase.skipped.push_back({std::max(skip.range.begin, position), skip.range.end});
  }
  phase.skipped = merged(std::move(phase.skipped));
}

Json Cursor::to_json() const {
  Json list = Json::array();
  for (const Phase& phase : phases) list.push_back(phase_to_json(phase));
  Json json = {{"phases", std::move(list)}};
  for (const LaterRange& skip : later) {
    json["later"].push_back({skip.phase, skip.range.begin, skip.range.end});
  }
  return json;
}

Cursor Cursor::from_json(const Json& json) {
  const Json list = field<Json>(json, "phases");
  require(list.is_array() && list.size() <= kMaxEntries, "phases is not a list");
  Cursor cursor;
  for (const Json& phase : list) cursor.phases.push_back(phase_from_json(phase));
  if (json.contains("later")) cursor.later = later_from_json(json["later"]);
  return cursor;
}

}  // namespace longhaul::data
