#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace longhaul::data {

/// Deals a stream of sequences to several sources in proportion to the weights of the
/// sources.
///
/// Weights are rounded to whole shares of a million sequences by the method of largest
/// remainders. With s_i the share of source i in a thousand sequences, these statements
/// hold:
/// - any window of 1,000 consecutive sequences holds floor(s_i) or ceil(s_i) sequences of
/// source i;
/// - the first k thousand sequences hold floor(k s_i) or ceil(k s_i), for every k;
/// - each million, counted from the beginning of the stream, holds the share exactly;
/// - any prefix differs from the share by less than three sequences.
///
/// In each thousand floor(s_i) evenly spread places always belong to source i. The F
/// remaining places ("floating places") belong to F sources, and no source has two
/// floating places in one thousand. The F sources are chosen so that every source's
/// running count stays at the floor or the ceiling of its exact share. The choice is
/// proportionate-fair scheduling on F processors: algorithm PF of Baruah, Cohen, Plaxton
/// and Varvel. A source that has a floating place in two consecutive thousands keeps the
/// same place, so a window that lies across both contains this place once. No window of a
/// thousand can do better than floor or ceiling.
///
/// The choice for 1,000 thousands is computed at construction and repeats in every
/// million. Only the order of the floating places is permuted from million to million,
/// since a source that floats in the last thousand and in the next first thousand must
/// keep its place. A place is found in tables, without replay. Immutable; any thread may
/// use a mixture.
class Mixture {
 public:
  /// The lengths of a window and of a period, in sequences.
  static constexpr int64_t kWindow = 1000;
  static constexpr int64_t kPeriod = kWindow * 1000;

  struct Pick {
    int source = 0;
    int64_t ordinal = 0;  ///< number of the source's earlier sequences in the stream
  };

  /// Takes relative weights, which must be finite and not negative. At least one weight
  /// must be positive, and a source of weight 0 gets no sequences. Throws ConfigError for
  /// other weights, and for a positive weight whose share is less than one sequence in a
  /// million.
  explicit Mixture(const std::vector<double>& weights);
  /// Returns the number of sequences of each source in a period, which are the weights
  /// after rounding.
  const std::vector<int64_t>& shares() const { return shares_; }
  /// Returns the source of a sequence, 0 <= sequence <= 2^62.
  Pick pick(int64_t sequence) const;
  /// Returns how many of the stream's first `sequences` sequences belong to each source.
  std::vector<int64_t> counts(int64_t sequences) const;

 private:
  /// A position in the stream.
  struct Position {
    int64_t window = 0;  ///< number of the window in the stream
    int64_t period = 0;  ///< number of the period in the stream
    size_t row = 0;      ///< number of the window in its period
    size_t place = 0;    ///< place in the window
  };
  static Position position_of(int64_t sequence);
  void lay_out_window();
  void choose_floating();
  /// Returns the source of each slot (floating place) in a window whose sources are
  /// `chosen`. `before` has the source of each slot in the window before.
  std::vector<int> next_slots(const std::vector<int>& before,
                              std::vector<int> chosen) const;
  /// Returns the slot that `slot` becomes `periods` periods later; earlier if `periods`
  /// is negative.
  size_t moved_slot(size_t slot, int64_t periods) const;
  int64_t count_before(size_t source, const Position& at) const;

  std::vector<int64_t> shares_;
  size_t slots_ = 0;  ///< F: number of floating places in a window
  /// For each position of a window: its source, or -1 - slot if it floats.
  std::vector<int> owner_;
  /// For each source: the positions that always belong to it, ascending.
  std::vector<std::vector<uint16_t>> places_;
  std::vector<uint16_t> slot_places_;  ///< by slot: the slot's place in a window
  std::vector<int> chosen_;  ///< [row][slot]: the slot's source in the first period
  /// [row][source]: how many floating places the source had before the row.
  std::vector<uint16_t> floated_;
  /// The permutation of the slots from one period to the next, as cycles.
  std::vector<std::vector<size_t>> cycles_;
  /// For each slot: the number of its cycle, and its index in the cycle.
  std::vector<std::pair<size_t, size_t>> in_cycle_;
};

}  // namespace longhaul::data
