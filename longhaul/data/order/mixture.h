#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace longhaul::data {

/// Deals a stream of sequences to several sources in proportion to their weights.
///
/// Weights become whole shares of a million sequences (largest remainders). Then, with
/// s_i the share of source i of a thousand:
/// - any 1,000 sequences in a row, wherever they begin, hold floor(s_i) or ceil(s_i) of
/// it;
/// - so do the first k thousand hold floor(k s_i) or ceil(k s_i), for every k;
/// - each million, counted from the begin of the stream, holds its share exactly;
/// - any prefix at all holds its share to less than three sequences.
///
/// How: floor(s_i) places of each thousand always belong to source i, spread evenly. The
/// F places that are left ("floating") belong in each thousand to F sources, each of
/// which has at most one. The F are chosen so that every source's running count stays the
/// floor or the ceiling of its due (proportionate-fair scheduling on F processors,
/// algorithm PF of Baruah, Cohen, Plaxton and Varvel). A source that has a floating place
/// in two thousands that follow each other keeps the same one: so a window that lies
/// across them sees it once. No window of a thousand can do better than floor or ceiling.
///
/// The choice for 1,000 thousands is computed at construction and repeats; only the order
/// of the floating places is permuted from million to million, since the last thousand
/// has to go over into the first. A place is found by table, without replay. Immutable;
/// any thread may use it.
class Mixture {
 public:
  /// The lengths of a window and of a period, in sequences.
  static constexpr int64_t kWindow = 1000;
  static constexpr int64_t kPeriod = kWindow * 1000;

  struct Pick {
    int source = 0;
    int64_t ordinal = 0;  ///< number of the source's earlier sequences in the stream
  };

  /// Weights are relative, finite and not negative, and at least one is positive; a
  /// source of weight 0 gets nothing. ConfigError for other weights, and for a positive
  /// weight whose share is less than one sequence in a million.
  explicit Mixture(const std::vector<double>& weights);
  /// Returns the sequences of each source in a period: the weights as they are used.
  const std::vector<int64_t>& shares() const { return shares_; }
  /// Returns the source of a sequence, 0 <= sequence <= 2^62.
  Pick pick(int64_t sequence) const;
  /// Returns for each source how many of the stream's first `sequences` are its own.
  std::vector<int64_t> counts(int64_t sequences) const;

 private:
  /// A place in the stream.
  struct Position {
    int64_t window = 0;  ///< number of the window in the stream
    int64_t period = 0;  ///< number of the period in the stream
    size_t row = 0;      ///< number of the window in its period
    size_t place = 0;    ///< place in the window
  };
  static Position position_of(int64_t sequence);
  void lay_out_window();
  void choose_floating();
  /// Gives the sources that are chosen for a window their floating slots, which follow
  /// from the slots of the window before.
  std::vector<int> next_slots(const std::vector<int>& before,
                              std::vector<int> chosen) const;
  /// Returns where a slot is `periods` periods later (earlier where negative).
  size_t moved_slot(size_t slot, int64_t periods) const;
  int64_t count_before(size_t source, const Position& at) const;

  std::vector<int64_t> shares_;
  size_t slots_ = 0;        ///< F: floating places of a window
  std::vector<int> owner_;  ///< by place of a window: its source, or -1 - slot
  std::vector<std::vector<uint16_t>> places_;  ///< by source: its own places, ascending
  std::vector<uint16_t> slot_places_;          ///< by slot: its place
  std::vector<int> chosen_;        ///< [row][slot]: the slot's source in the first period
  std::vector<uint16_t> floated_;  ///< [row][source]: floating places before that row
  /// The permutation of the slots from one period to the next, as cycles.
  std::vector<std::vector<size_t>> cycles_;
  std::vector<std::pair<size_t, size_t>> in_cycle_;  ///< by slot: cycle, place in it
};

}  // namespace longhaul::data
