#include "longhaul/data/order/phase_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

#include "longhaul/base/random.h"

namespace longhaul::data {
namespace {

/// Identifies a source of a phase: its fingerprint, and a number for data that the phase
/// names twice.
using SourceKey = std::pair<std::string, int>;

std::vector<SourceKey> keys_of(const Phase& phase) {
  std::map<std::string, int> seen;
  std::vector<SourceKey> keys;
  for (const PhaseSource& source : phase.sources) {
    keys.emplace_back(source.fingerprint, seen[source.fingerprint]++);
  }
  return keys;
}

Mixture mixture_of(const Phase& phase) {
  std::vector<double> weights;
  for (const PhaseSource& source : phase.sources) weights.push_back(source.weight);
  return Mixture(weights);
}

/// How far a source was read, and the order in which it was read.
struct Progress {
  int64_t seq_len = 0;
  int64_t num_sequences = 1;
  uint64_t seed = 0;
  bool shuffle = false;
  int64_t ordinal = 0;
  double passes = 0.0;  ///< in sequences of the latest phase, as PhaseStream::had()
  SourceCount had;

  /// Switches to the order of another phase. A new order begins with the next whole pass.
  void change_order(const Phase& phase, int64_t sequences) {
    const bool same = seq_len == phase.seq_len && num_sequences == sequences &&
                      seed == phase.seed && shuffle == phase.shuffle;
    if (!same) ordinal = (ordinal + num_sequences - 1) / num_sequences * sequences;
    passes = passes * static_cast<double>(sequences) / static_cast<double>(num_sequences);
    seq_len = phase.seq_len;
    num_sequences = sequences;
    seed = phase.seed;
    shuffle = phase.shuffle;
  }
};

/// Returns the number of sequences of each source that a phase has handed out after
/// `consumed` sequences.
std::vector<int64_t> handed_out(const Phase& phase, const Mixture& mixture,
                                int64_t consumed) {
  std::vector<int64_t> counts = mixture.counts(phase.stream_position(consumed));
  int64_t passed = 0;  // sequences of the skipped ranges so far
  for (const SequenceRange& range : phase.skipped) {
    if (range.begin > consumed + passed) break;
    passed += range.end - range.begin;
    const std::vector<int64_t> begin = mixture.counts(range.begin);
    const std::vector<int64_t> end = mixture.counts(range.end);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] -= end[i] - begin[i];
  }
  return counts;
}

/// The progress of all sources in the phases so far.
using History = std::map<SourceKey, Progress>;

void follow(History& history, const Phase& phase) {
  const std::vector<SourceKey> keys = keys_of(phase);
  const Mixture mixture = mixture_of(phase);
  const std::vector<int64_t> passed =
      mixture.counts(phase.stream_position(phase.consumed));
  const std::vector<int64_t> had = handed_out(phase, mixture, phase.consumed);
  for (size_t i = 0; i < keys.size(); ++i) {
    Progress& source = history[keys[i]];
    source.change_order(phase, phase.sources[i].num_sequences);
    source.ordinal += passed[i];
    source.passes += static_cast<double>(had[i]);
    source.had.name = phase.sources[i].name;
    source.had.fingerprint = phase.sources[i].fingerprint;
    source.had.sequences += had[i];
    source.had.tokens += had[i] * phase.seq_len;
  }
}

}  // namespace

PhaseStream::PhaseStream(const std::vector<Phase>& phases)
    : phase_(phases.back()),
      mixture_(mixture_of(phase_)),
      orders_(phase_.sources.size()) {
  History history;
  for (size_t i = 0; i + 1 < phases.size(); ++i) follow(history, phases[i]);
  const std::vector<SourceKey> keys = keys_of(phase_);
  for (size_t i = 0; i < keys.size(); ++i) {
    const PhaseSource& source = phase_.sources[i];
    Progress& progress = history[keys[i]];
    progress.change_order(phase_, source.num_sequences);
    first_ordinals_.push_back(progress.ordinal);
    had_before_.push_back(progress.passes);
    progress.had.name = source.name;
    progress.had.fingerprint = source.fingerprint;
    earlier_.push_back(progress.had);
    keys_.push_back(random_key(
        phase_.seed, fmt::format("order {} {}", keys[i].second, keys[i].first)));
  }
  for (const SourceKey& key : keys) history.erase(key);
  for (const auto& [key, progress] : history) earlier_.push_back(progress.had);
}

PhaseStream::Place PhaseStream::place(int64_t n) {
  const Mixture::Pick pick = mixture_.pick(phase_.stream_position(n));
  const auto s = static_cast<size_t>(pick.source);
  const int64_t size = phase_.sources[s].num_sequences;
  const int64_t ordinal = first_ordinals_[s] + pick.ordinal;
  const int64_t epoch = ordinal / size;
  const int64_t index = ordinal % size;
  if (!phase_.shuffle) return {s, index};
  Order& order = orders_[s];
  if (order.epoch != epoch) {
    order.permutation = order_of(s, epoch);
    order.epoch = epoch;
  }
  return {s, (*order.permutation)(index)};
}

Permutation PhaseStream::order_of(size_t source, int64_t epoch) const {
  return {phase_.sources[source].num_sequences,
          random_key(keys_[source], fmt::format("epoch {}", epoch))};
}

std::vector<int64_t> PhaseStream::uses(size_t source, int64_t index,
                                       int64_t consumed) const {
  std::vector<int64_t> found;
  const int64_t end = phase_.stream_position(consumed);
  const int64_t size = phase_.sources[source].num_sequences;
  const int64_t first = first_ordinals_[source];
  const int64_t last = first + mixture_.counts(end)[source];
  for (int64_t epoch = first / size; epoch * size < last; ++epoch) {
    const int64_t in_epoch =
        phase_.shuffle ? order_of(source, epoch).index_of(index) : index;
    const int64_t ordinal = epoch * size + in_epoch;
    if (ordinal < first || ordinal >= last) continue;
    // The position behind which the stream has one more sequence of the source.
    const auto before = [&](int64_t position) {
      return mixture_.counts(position + 1)[source] <= ordinal - first;
    };
    const int64_t position =
        *std::ranges::partition_point(std::views::iota(int64_t{0}, end), before);
    if (const auto n = phase_.number_at(position)) found.push_back(*n);
  }
  return found;
}

std::vector<double> PhaseStream::had(int64_t consumed) const {
  const std::vector<int64_t> here = handed_out(phase_, mixture_, consumed);
  std::vector<double> result = had_before_;
  for (size_t i = 0; i < result.size(); ++i) result[i] += static_cast<double>(here[i]);
  return result;
}

std::vector<SourceCount> PhaseStream::counts(int64_t consumed) const {
  std::vector<SourceCount> result = earlier_;
  const std::vector<int64_t> here = handed_out(phase_, mixture_, consumed);
  for (size_t i = 0; i < here.size(); ++i) {
    result[i].sequences += here[i];
    result[i].tokens += here[i] * phase_.seq_len;
  }
  return result;
}

std::vector<SourceCount> source_counts(const Cursor& cursor) {
  if (cursor.phases.empty()) return {};
  return PhaseStream(cursor.phases).counts(cursor.phases.back().consumed);
}

}  // namespace longhaul::data
