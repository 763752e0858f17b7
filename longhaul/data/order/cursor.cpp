#include "longhaul/data/order/cursor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "longhaul/base/json/json_fields.h"

namespace longhaul::data {
namespace {

constexpr size_t kMaxEntries = 1'000'000;

constexpr int64_t kMost = int64_t{1} << 61;  ///< the largest place in a stream

void require(const JsonFields& fields, bool condition, const char* problem) {
  if (!condition) fields.fail(problem);
}

/// Reads a list of `count` whole numbers. Throws an error with the text `problem` for
/// anything else.
std::vector<int64_t> numbers(const JsonFields& fields, const Json& json, size_t count,
                             const char* problem) {
  require(fields, json.is_array() && json.size() == count, problem);
  std::vector<int64_t> out;
  for (const Json& item : json) {
    require(fields, item.is_number_integer(), problem);
    out.push_back(item.get<int64_t>());
  }
  return out;
}

/// Returns the union of the ranges as ascending, disjoint ranges.
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

/// Returns the range of the phase's stream that holds the last `count` sequences that
/// were handed out. The range includes skipped sequences between these sequences.
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

Phase phase_from_json(const JsonFields& fields) {
  Phase phase;
  phase.seq_len = fields.get<int64_t>("seq_len");
  phase.shuffle = fields.get<bool>("shuffle");
  phase.seed = fields.get<uint64_t>("seed");
  phase.consumed = fields.get<int64_t>("consumed");
  require(fields, phase.seq_len > 0, "seq_len is not positive");
  require(fields, phase.consumed >= 0 && phase.consumed <= kMost,
          "consumed is out of range");
  for (const Json& item : fields.list("sources", kMaxEntries)) {
    const JsonFields source = fields.inside(item);
    PhaseSource& added = phase.sources.emplace_back();
    added.fingerprint = source.get<std::string>("fingerprint");
    added.weight = source.get<double>("weight");
    added.num_sequences = source.get<int64_t>("num_sequences");
    added.name = source.get<std::string>("name");
    require(fields, std::isfinite(added.weight) && added.weight >= 0,
            "a weight is negative");
    require(fields, added.num_sequences > 0, "a source has no sequences");
  }
  require(fields, !phase.sources.empty(), "a phase has no sources");
  int64_t end = 0;
  for (const Json& item : fields.list("skipped", kMaxEntries)) {
    const auto range =
        numbers(fields, item, 2, "a skipped range is not a pair of integers");
    phase.skipped.push_back({range[0], range[1]});
    require(fields, range[0] >= end && range[1] >= range[0] && range[1] <= kMost,
            "skipped ranges are not ascending");
    end = range[1];
  }
  return phase;
}

std::vector<LaterRange> later_from_json(const JsonFields& fields) {
  std::vector<LaterRange> later;
  if (!fields.has("later")) return later;
  for (const Json& item : fields.list("later", kMaxEntries)) {
    const auto range =
        numbers(fields, item, 3, "a range in 'later' is not three integers");
    require(fields,
            range[0] >= 0 && range[1] >= 0 && range[2] >= range[1] && range[2] <= kMost,
            "a range in 'later' is out of bounds");
    later.push_back({range[0], {range[1], range[2]}});
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

std::optional<int64_t> Phase::number_at(int64_t position) const {
  int64_t passed = 0;
  for (const SequenceRange& range : skipped) {
    if (position < range.begin) break;
    if (position < range.end) return std::nullopt;
    passed += range.end - range.begin;
  }
  return position - passed;
}

int64_t Phase::per_epoch() const {
  int64_t sum = 0;
  for (const PhaseSource& source : sources) sum += source.num_sequences;
  return sum;
}

double Cursor::sequences_of(int64_t per_epoch) const {
  double sum = 0.0;
  for (const Phase& phase : phases) {
    // The product comes before the division, so that whole numbers stay whole.
    sum += static_cast<double>(phase.consumed) * static_cast<double>(per_epoch) /
           static_cast<double>(phase.per_epoch());
  }
  return sum;
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
  // A skipped range before this position would shift the positions of sequences that were
  // handed out.
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
  const JsonFields fields(json, "data", "the stored data position is damaged",
                          "choose another checkpoint");
  Cursor cursor;
  for (const Json& phase : fields.list("phases", kMaxEntries)) {
    cursor.phases.push_back(phase_from_json(fields.inside(phase)));
  }
  cursor.later = later_from_json(fields);
  return cursor;
}

}  // namespace longhaul::data
