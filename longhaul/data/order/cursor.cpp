#include "longhaul/data/order/cursor.h"

#include <fmt/format.h>

#include <cmath>

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

Json Cursor::to_json() const {
  Json list = Json::array();
  for (const Phase& phase : phases) list.push_back(phase_to_json(phase));
  return {{"phases", std::move(list)}};
}

Cursor Cursor::from_json(const Json& json) {
  const Json list = field<Json>(json, "phases");
  require(list.is_array() && list.size() <= kMaxEntries, "phases is not a list");
  Cursor cursor;
  for (const Json& phase : list) cursor.phases.push_back(phase_from_json(phase));
  return cursor;
}

}  // namespace longhaul::data
