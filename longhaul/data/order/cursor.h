#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::data {

/// One source of a phase.
struct PhaseSource {
  std::string fingerprint;  ///< TokenSource::fingerprint
  double weight = 1.0;      ///< 0: unused in this phase
  int64_t num_sequences = 0;
  std::string name;  ///< for people; equal data under another name is an equal source
  bool operator==(const PhaseSource& other) const {
    return fingerprint == other.fingerprint && weight == other.weight &&
           num_sequences == other.num_sequences;
  }
};

/// A range [begin, end) of places in a phase's stream of sequences.
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
  /// Sequences of this phase that training got so far, without the skipped sequences.
  int64_t consumed = 0;
  /// Ranges of the phase's stream that training passes over; ascending and disjoint.
  std::vector<SequenceRange> skipped;
  bool operator==(const Phase&) const = default;

  /// True when everything but `consumed` and `skipped` is equal.
  bool same_stream(const Phase& other) const;
  /// Returns the place in the stream of the n-th sequence that is not skipped.
  int64_t stream_position(int64_t n) const;
};

/// A range that a phase that has not begun yet is to pass over.
struct LaterRange {
  int64_t phase = 0;  ///< counted from 0
  SequenceRange range;
  bool operator==(const LaterRange&) const = default;
};

/// A run's position in its data. It is enough to find any later batch without replay, for
/// any number of ranks, after a change of batch, mixture or length.
struct Cursor {
  std::vector<Phase> phases;
  std::vector<LaterRange> later;
  bool operator==(const Cursor&) const = default;

  /// Adds a phase, which passes over the ranges that `later` has for it.
  void begin_phase(Phase phase);
  /// For a run that goes back from the cursor `now` to this earlier cursor: makes this
  /// cursor pass over the last `sequences` sequences that `now` had handed out, and over
  /// all sequences that `now` passes over. What lies before this cursor stays as it was.
  void pass_over_last(const Cursor& now, int64_t sequences);

  /// Return the sequences of all phases and the tokens of all phases.
  int64_t sequences() const;
  int64_t tokens() const;

  Json to_json() const;
  /// InputError names the field that makes `json` no cursor.
  static Cursor from_json(const Json& json);
};

}  // namespace longhaul::data
