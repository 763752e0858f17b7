#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::data {

/// One source of a phase.
struct PhaseSource {
  std::string fingerprint;  ///< TokenSource::fingerprint
  double weight = 1.0;      ///< 0: unused in this phase
  int64_t num_sequences = 0;
  std::string name;  ///< for people; the name does not count when sources are compared
  bool operator==(const PhaseSource& other) const {
    return fingerprint == other.fingerprint && weight == other.weight &&
           num_sequences == other.num_sequences;
  }
};

/// A range [begin, end) of positions in a phase's stream of sequences.
struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const SequenceRange&) const = default;
};

/// A stretch of a run over which sequence length and mixture stay the same.
struct Phase {
  int64_t seq_len = 0;
  bool shuffle = true;
  uint64_t seed = 0;
  std::vector<PhaseSource> sources;
  /// Sequences of this phase that training has had so far, without the skipped sequences.
  int64_t consumed = 0;
  /// Ranges of the phase's stream that training skips; ascending and disjoint.
  std::vector<SequenceRange> skipped;
  bool operator==(const Phase&) const = default;

  /// Returns the number of sequences of all sources, each counted once.
  int64_t per_epoch() const;
  /// Returns true when everything but `consumed` and `skipped` is equal.
  bool same_stream(const Phase& other) const;
  /// Returns the position in the stream of the n-th sequence that is not skipped.
  int64_t stream_position(int64_t n) const;
  /// Returns which of the sequences that are not skipped, counted from 0, stands at a
  /// position in the stream; nothing if the position is skipped.
  std::optional<int64_t> number_at(int64_t position) const;
};

/// A range that a future phase will skip.
struct LaterRange {
  int64_t phase = 0;  ///< counted from 0
  SequenceRange range;
  bool operator==(const LaterRange&) const = default;
};

/// A run's position in its data. A checkpoint stores the cursor. The cursor suffices to
/// find any later batch without replay, for any number of ranks, after a change of batch,
/// mixture or length.
struct Cursor {
  std::vector<Phase> phases;
  std::vector<LaterRange> later;
  bool operator==(const Cursor&) const = default;

  /// Adds a phase. The phase skips the ranges that `later` has for the phase's number.
  void begin_phase(Phase phase);
  /// Makes this cursor skip data, for a run that goes back from the cursor `now` to this
  /// earlier cursor. The cursor will skip the last `sequences` sequences that `now` had
  /// handed out, and all ranges that `now` skips. Ranges before this cursor's position
  /// stay as they are.
  void pass_over_last(const Cursor& now, int64_t sequences);

  /// Returns how many sequences training has had, counted as if each epoch had
  /// `per_epoch` sequences. A phase whose epoch has another number of sequences, such as
  /// a phase of another length, counts by the share of its own epoch that was read.
  double sequences_of(int64_t per_epoch) const;
  /// Returns the number of sequences that training has had in all phases. tokens()
  /// returns the number of tokens in these sequences.
  int64_t sequences() const;
  int64_t tokens() const;

  Json to_json() const;
  /// Reads a cursor. Throws InputError that names the field which is absent or wrong.
  static Cursor from_json(const Json& json);
};

}  // namespace longhaul::data
