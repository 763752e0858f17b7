#include "longhaul/data/order/mixture.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr int64_t kRows = Mixture::kPeriod / Mixture::kWindow;

/// Returns the number of sequences of each source in a period, as whole numbers. The
/// sequences that are left after rounding down go to the sources with the largest
/// remainders.
std::vector<int64_t> whole_shares(const std::vector<double>& weights) {
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0.0) {
      fail_config("data",
                  "source {} of data.train has weight {}; a weight is a number that is "
                  "not negative",
                  i + 1, weights[i]);
    }
    sum += weights[i];
  }
  if (!std::isfinite(sum) || sum <= 0.0) {
    fail_config("data",
                "the weights of data.train add up to {}; one source at least needs a "
                "positive weight",
                sum);
  }
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = Mixture::kPeriod;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / sum * static_cast<double>(Mixture::kPeriod);
    if (weights[i] > 0.0 && exact < 1.0 - 1e-9) {
      fail_config("data",
                  "source {} of data.train has weight {} of {}, which is {:.3g} of a "
                  "million sequences; the smallest share is 1, so raise the weight to "
                  "{:.3g}, or leave the source out",
                  i + 1, weights[i], sum, exact, sum * 1.01e-6);
    }
    const double whole = std::max(std::floor(exact), weights[i] > 0.0 ? 1.0 : 0.0);
    shares.push_back(static_cast<int64_t>(whole));
    left -= shares.back();
    if (weights[i] > 0.0) remainders.emplace_back(whole - exact, i);
  }
  std::sort(remainders.begin(), remainders.end());  // the largest first, then by source
  for (size_t i = 0; left > 0; i = (i + 1) % remainders.size()) {
    ++shares[remainders[i].second];
    --left;
  }
  while (left < 0) {  // rounding up to 1 took more than there was
    --*std::max_element(shares.begin(), shares.end());
    ++left;
  }
  return shares;
}

/// Deals the positions of a window to classes with these quotas. In each prefix a class
/// is within one position of its exact share (Tijdeman's chairman assignment).
std::vector<size_t> spread_evenly(const std::vector<int64_t>& quotas) {
  const auto classes = static_cast<int64_t>(
      std::ranges::count_if(quotas, [](int64_t q) { return q > 0; }));
  const int64_t twice = std::max<int64_t>(2 * classes - 2, 1);
  std::vector<int64_t> dealt(quotas.size(), 0);
  std::vector<size_t> owners;
  for (int64_t k = 1; k <= Mixture::kWindow; ++k) {
    size_t best = quotas.size();
    int64_t best_slack = 0;
    for (size_t i = 0; i < quotas.size(); ++i) {
      // The distance by which a class would be behind its exact share, in thousandths of
      // a position.
      const int64_t behind = quotas[i] * k - Mixture::kWindow * dealt[i];
      if (quotas[i] == 0 || twice * behind < Mixture::kWindow) continue;
      const int64_t slack = (twice - 1) * Mixture::kWindow - twice * behind;
      if (best == quotas.size() || slack * quotas[best] < best_slack * quotas[i]) {
        best = i;
        best_slack = slack;
      }
    }
    LH_ASSERT(best < quotas.size(), "no class is due at place {} of a window", k);
    ++dealt[best];
    owners.push_back(best);
  }
  LH_ASSERT(dealt == quotas, "a window is dealt otherwise than its quotas say");
  return owners;
}

/// The deadline of a source's turn in the floating places (see Mixture): the turn must
/// come before `row`, the number of a window in its period. `shared` says that the last
/// window of this turn is also the first window of the next turn.
struct Deadline {
  int64_t row = 0;
  bool shared = false;
  /// Returns the deadline of the n-th turn (from 1) of a source with `rate` turns in all
  /// rows.
  static Deadline of(int64_t n, int64_t rate) {
    const int64_t due = n * kRows;
    const bool shared = due % rate != 0;
    return {due / rate + (shared ? 1 : 0), shared};
  }
};

/// The progress of a source in the floating places.
struct Task {
  int source = 0;
  int64_t rate = 0;  ///< turns in all rows of a period
  int64_t done = 0;
  Deadline next = Deadline::of(1, rate);
};

/// Returns whether `a` goes before `b` in algorithm PF. The earlier deadline goes first.
/// At equal deadlines the task whose turn shares its last row with its next turn goes
/// first. When both tasks share, their next turns are compared in the same way.
bool more_urgent(const Task& a, const Task& b) {
  Deadline of_a = a.next;
  Deadline of_b = b.next;
  for (int64_t turn = 2;; ++turn) {
    if (of_a.row != of_b.row) return of_a.row < of_b.row;
    if (of_a.shared != of_b.shared) return of_a.shared;
    if (!of_a.shared) return a.source < b.source;
    of_a = Deadline::of(a.done + turn, a.rate);
    of_b = Deadline::of(b.done + turn, b.rate);
  }
}

/// Chooses the sources of one row so that each count stays at the floor or the ceiling of
/// its exact share.
std::vector<int> choose_row(std::vector<Task>& tasks, int64_t row, size_t slots) {
  std::vector<Task*> ready;
  for (Task& task : tasks) {
    if (task.done * kRows < (row + 1) * task.rate) ready.push_back(&task);
  }
  LH_ASSERT(ready.size() >= slots, "{} sources for {} floating places", ready.size(),
            slots);
  const auto end = ready.begin() + static_cast<ptrdiff_t>(slots);
  const auto before = [](const Task* a, const Task* b) { return more_urgent(*a, *b); };
  if (end != ready.end()) std::nth_element(ready.begin(), end, ready.end(), before);
  std::vector<int> sources;
  for (auto at = ready.begin(); at != end; ++at) {
    Task& task = **at;
    ++task.done;
    task.next = Deadline::of(task.done + 1, task.rate);
    sources.push_back(task.source);
  }
  for (const Task& task : tasks) {
    LH_ASSERT((task.done + 1) * kRows > (row + 1) * task.rate,
              "source {} fell behind at row {}", task.source, row);
  }
  std::sort(sources.begin(), sources.end());
  return sources;
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) {
  LH_CHECK(!weights.empty(), "data", "a mixture of no sources");
  shares_ = whole_shares(weights);
  lay_out_window();
  choose_floating();
}

void Mixture::lay_out_window() {
  std::vector<int64_t> quotas;
  int64_t floating = kWindow;
  for (const int64_t share : shares_) {
    quotas.push_back(share / kRows);
    floating -= quotas.back();
  }
  slots_ = static_cast<size_t>(floating);
  quotas.push_back(floating);
  places_.resize(shares_.size());
  const std::vector<size_t> owners = spread_evenly(quotas);
  for (size_t place = 0; place < owners.size(); ++place) {
    const size_t owner = owners[place];
    if (owner < shares_.size()) {
      owner_.push_back(static_cast<int>(owner));
      places_[owner].push_back(static_cast<uint16_t>(place));
    } else {
      owner_.push_back(-1 - static_cast<int>(slot_places_.size()));
      slot_places_.push_back(static_cast<uint16_t>(place));
    }
  }
}

void Mixture::choose_floating() {
  std::vector<Task> tasks;
  for (size_t i = 0; i < shares_.size(); ++i) {
    const int64_t rate = shares_[i] % kRows;
    if (rate > 0) tasks.push_back({static_cast<int>(i), rate});
  }
  floated_.assign(static_cast<size_t>(kRows + 1) * shares_.size(), 0);
  std::vector<int> slots;
  for (int64_t row = 0; row < kRows; ++row) {
    slots = next_slots(slots, choose_row(tasks, row, slots_));
    chosen_.insert(chosen_.end(), slots.begin(), slots.end());
    uint16_t* next = floated_.data() + static_cast<size_t>(row + 1) * shares_.size();
    for (const Task& task : tasks) next[task.source] = static_cast<uint16_t>(task.done);
  }
  // Computes the source of each slot (floating place) in the first row of the next period
  // from the slots of the last row of this period.
  const std::vector<int> first(chosen_.begin(),
                               chosen_.begin() + static_cast<ptrdiff_t>(slots_));
  std::vector<int> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  const std::vector<int> again = next_slots(slots, std::move(sorted));
  in_cycle_.assign(slots_, {SIZE_MAX, 0});
  for (size_t start = 0; start < slots_; ++start) {
    if (in_cycle_[start].first != SIZE_MAX) continue;
    std::vector<size_t>& cycle = cycles_.emplace_back();
    for (size_t slot = start; in_cycle_[slot].first == SIZE_MAX;) {
      in_cycle_[slot] = {cycles_.size() - 1, cycle.size()};
      cycle.push_back(slot);
      const auto moved = std::find(again.begin(), again.end(), first[slot]);
      slot = static_cast<size_t>(moved - again.begin());
    }
  }
}

std::vector<int> Mixture::next_slots(const std::vector<int>& before,
                                     std::vector<int> chosen) const {
  if (before.empty()) return chosen;
  // A source that is new in a row takes the slot of a source that leaves, both in the
  // order of sources. The rule uses no slot numbers, so that permuting the slots of one
  // row permutes the slots of all rows that follow.
  std::vector<int> gone = before;
  std::sort(gone.begin(), gone.end());
  std::vector<int> leaving;
  std::vector<int> coming;
  std::ranges::set_difference(gone, chosen, std::back_inserter(leaving));
  std::ranges::set_difference(chosen, gone, std::back_inserter(coming));
  std::vector<int> slots = before;
  for (int& source : slots) {
    const auto found = std::lower_bound(leaving.begin(), leaving.end(), source);
    if (found == leaving.end() || *found != source) continue;
    source = coming[static_cast<size_t>(found - leaving.begin())];
  }
  return slots;
}

Mixture::Position Mixture::position_of(int64_t sequence) {
  LH_CHECK(sequence >= 0 && sequence <= (int64_t{1} << 62), "data",
           "sequence {} of a mixture", sequence);
  const int64_t window = sequence / kWindow;
  return {window, window / kRows, static_cast<size_t>(window % kRows),
          static_cast<size_t>(sequence % kWindow)};
}

size_t Mixture::moved_slot(size_t slot, int64_t periods) const {
  const auto& [cycle, at] = in_cycle_[slot];
  const std::vector<size_t>& slots = cycles_[cycle];
  const auto size = std::ssize(slots);
  return slots[static_cast<size_t>((static_cast<int64_t>(at) + periods % size + size) %
                                   size)];
}

int64_t Mixture::count_before(size_t source, const Position& at) const {
  const int64_t share = shares_[source];
  const std::vector<uint16_t>& places = places_[source];
  const auto fixed = std::lower_bound(places.begin(), places.end(), at.place);
  const uint16_t* floated = floated_.data() + at.row * shares_.size() + source;
  int64_t count = at.window * (share / kRows) + at.period * (share % kRows) + *floated +
                  (fixed - places.begin());
  if (floated[shares_.size()] == *floated) return count;
  // The source has a floating place in this window. The place may lie before the
  // position.
  const int* row = chosen_.data() + at.row * slots_;
  const auto slot =
      static_cast<size_t>(std::find(row, row + slots_, static_cast<int>(source)) - row);
  return count + (slot_places_[moved_slot(slot, at.period)] < at.place ? 1 : 0);
}

Mixture::Pick Mixture::pick(int64_t sequence) const {
  const Position at = position_of(sequence);
  int source = owner_[at.place];
  if (source < 0) {
    const size_t slot = moved_slot(static_cast<size_t>(-1 - source), -at.period);
    source = chosen_[at.row * slots_ + slot];
  }
  return {source, count_before(static_cast<size_t>(source), at)};
}

std::vector<int64_t> Mixture::counts(int64_t sequences) const {
  const Position at = position_of(sequences);
  std::vector<int64_t> result;
  for (size_t i = 0; i < shares_.size(); ++i) result.push_back(count_before(i, at));
  return result;
}

}  // namespace longhaul::data
