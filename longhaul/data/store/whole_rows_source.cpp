#include "longhaul/data/store/whole_rows_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

/// Says how many units something was done to, and which was the first.
std::string said_of(const RowCounts::Some& some, const std::string& what,
                    const char* word) {
  if (some.count == 0) return "";
  return fmt::format("; {} {} (the first: {} {})", counted(some.count, word), what, word,
                     some.first);
}

class WholeRowsSource final : public TokenSource {
 public:
  WholeRowsSource(const fs::path& path, const WholeRows& how, bool verify)
      : store_(path, verify), how_(how), units_(store_, how), plan_(units_, store_, how) {
    if (plan_.counts().rows > 0) return;
    fail_input(
        "data",
        "{}: no {} can stand in a row of {} tokens{}; choose a larger data.seq_len, "
        "or set data.too_long = \"cut\"",
        path.string(), units_.word(), how.seq_len, left_out());
  }

  int64_t num_sequences() const override { return plan_.counts().rows; }
  int64_t seq_len() const override { return how_.seq_len; }
  int64_t max_token_id() const override { return store_.info().counts.max_token_id + 1; }
  std::string fingerprint() const override { return plan_.key(); }
  std::string tokenizer_fingerprint() const override {
    return store_.info().tokenizer_fingerprint;
  }

  std::vector<std::string> losses() const override {
    if (!has_pairs()) return {kNextToken};
    if (chosen_tokens_) return {kPreference, kChosenToken};
    return {kPreference};
  }
  void keep_losses(const std::vector<std::string>& wanted) override {
    if (wanted == std::vector<std::string>{kPreference}) chosen_tokens_ = false;
  }
  int64_t num_pairs() const override { return has_pairs() ? units_.size() : 0; }
  void shape(TokenBatch& batch, int64_t rows) const override {
    batch.resize(rows, seq_len());
    if (!has_pairs()) return;
    batch.pairs.resize(static_cast<size_t>(rows));
    batch.sides.assign(batch.tokens.size(), -1);
    if (chosen_tokens_) batch.targets.emplace_back(batch.tokens.size(), kIgnore);
  }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    int64_t place = 0;
    for (const uint32_t number : plan_.units_of(index)) {
      if (number >= units_.size()) refuse(index);
      const RowUnits::Unit unit = units_.at(number);
      if (has_pairs()) tell_pair(number, unit, batch, row, place);
      for (size_t side = 0; side < units_.sides(); ++side) {
        if (unit.kept[side].tokens > how_.seq_len - place) refuse(index);
        put(unit.kept[side], place, to);
        place += unit.kept[side].tokens;
      }
    }
    if (chosen_tokens_ && has_pairs()) target_chosen(to, batch, row);
    const auto padding = static_cast<size_t>(place);
    std::ranges::fill(to.tokens.subspan(padding), 0);
    std::ranges::fill(to.targets.subspan(padding), kIgnore);
    begin_anew(place, how_.seq_len, to);
    set_real_length(batch, row, place);
  }

  std::vector<DocumentPart> documents(int64_t index) const override {
    std::vector<DocumentPart> parts;
    int64_t place = 0;
    for (const uint32_t number : plan_.units_of(index)) {
      if (number >= units_.size()) refuse(index);
      const RowUnits::Unit unit = units_.at(number);
      for (size_t side = 0; side < units_.sides(); ++side) {
        const auto document = static_cast<int64_t>(number * units_.sides() + side);
        parts.push_back(store_.part_of(document, 0, unit.kept[side].tokens));
        parts.back().begin = place;
        place += unit.kept[side].tokens;
      }
    }
    return parts;
  }
  std::vector<int64_t> sequences_with(const DocumentPart& part) const override {
    if (part.store != store_.path().string()) return {};
    const auto sides = static_cast<int64_t>(units_.sides());
    const RowUnits::Unit unit = units_.at(part.document / sides);
    const auto side = static_cast<size_t>(part.document % sides);
    if (part.offset >= unit.kept[side].tokens) return {};
    const uint32_t row = row_of(part.document / sides);
    return row == kNoRow ? std::vector<int64_t>() : std::vector<int64_t>{row};
  }
  std::vector<DocumentPart> documents_named(const std::string& file,
                                            int64_t record) const override {
    std::vector<DocumentPart> found;
    for (const int64_t document : store_.documents_named({file, record})) {
      found.push_back(store_.part_of(document, 0, -1));
    }
    return found;
  }

  std::string describe() const override {
    const RowCounts& counts = plan_.counts();
    const int64_t padding = counts.rows * how_.seq_len - counts.tokens;
    return fmt::format(
        "token store {}: {} whole, {}, in {} of {}, of whose positions {:.2f}% are "
        "padding{}",
        store_.path().string(), counted(counts.units, units_.word()),
        counted(counts.tokens, "token"), counted(counts.rows, "row"), how_.seq_len,
        100.0 * static_cast<double>(padding) /
            static_cast<double>(counts.rows * how_.seq_len),
        left_out());
  }

 private:
  bool has_pairs() const { return units_.sides() == 2; }

  /// Returns elements of `values`, which has one for each position, of a row.
  std::span<int32_t> row_in(std::vector<int32_t>& values, int64_t row) const {
    const auto length = static_cast<size_t>(how_.seq_len);
    return std::span(values).subspan(static_cast<size_t>(row) * length, length);
  }

  /// Notes that a pair stands in a row of a batch, from position `place` on.
  void tell_pair(int64_t number, const RowUnits::Unit& unit, TokenBatch& batch,
                 int64_t row, int64_t place) const {
    std::vector<Pair>& pairs = batch.pairs.at(static_cast<size_t>(row));
    const std::span<int32_t> sides = row_in(batch.sides, row);
    if (place == 0) {
      pairs.clear();
      std::ranges::fill(sides, -1);
    }
    const auto first = sides.begin() + place;
    const int64_t chosen = std::min(unit.kept[0].tokens, how_.seq_len - place);
    const int64_t both = std::min(unit.num_kept(), how_.seq_len - place);
    const auto side = static_cast<int32_t>(2 * pairs.size());
    std::fill(first, first + chosen, side);
    std::fill(first + chosen, first + both, side + 1);
    pairs.push_back({.number = number});
  }

  /// Makes each next token of the chosen sides of a row a target of the second term.
  static void target_chosen(const BatchRow& to, TokenBatch& batch, int64_t row) {
    const auto length = static_cast<int64_t>(to.tokens.size());
    const auto side = batch.sides.begin() + row * length;
    const auto target = batch.targets[1].begin() + row * length;
    std::fill(target, target + length, kIgnore);
    for (int64_t i = 0; i + 1 < length; ++i) {
      if (side[i] < 0 || side[i] % 2 != 0 || side[i + 1] != side[i]) continue;
      target[i] = to.tokens[static_cast<size_t>(i + 1)];
    }
  }

  /// Returns the row of a unit; kNoRow if it is in none. The first call goes through the
  /// whole plan.
  uint32_t row_of(int64_t unit) const {
    std::call_once(rows_once_, [this] {
      row_of_.assign(static_cast<size_t>(units_.size()), kNoRow);
      for (int64_t row = 0; row < plan_.counts().rows; ++row) {
        for (const uint32_t number : plan_.units_of(row)) {
          if (number >= units_.size()) refuse(row);
          row_of_[number] = static_cast<uint32_t>(row);
        }
      }
    });
    return row_of_.at(static_cast<size_t>(unit));
  }

  std::string left_out() const {
    const RowCounts& counts = plan_.counts();
    const std::string cut =
        fmt::format("cut by {} in all", counted(counts.tokens_cut, "token"));
    return said_of(counts.too_long, "left out as longer than a row", units_.word()) +
           said_of(counts.no_target, "left out without a target", units_.word()) +
           said_of(counts.cut, cut, units_.word());
  }

  [[noreturn]] void refuse(int64_t index) const {
    fail_input(
        "data",
        "{}: row {} of {} tokens has no room for what the plan {} puts into it. The "
        "store has changed since the plan was made: look at it with 'longhaul "
        "verify'; {}",
        store_.path().string(), index, how_.seq_len, plan_.file().string(), kRemovePlan);
  }

  /// Gives positions [begin, end) of a row numbers from 0 and one document.
  static void begin_anew(int64_t begin, int64_t end, const BatchRow& to) {
    for (int64_t i = begin; i < end; ++i) {
      to.document_start[static_cast<size_t>(i)] = static_cast<int32_t>(begin);
      to.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i - begin);
    }
  }

  /// Puts a document, or what is kept of it, to position `place` of a row.
  void put(const RowPart& part, int64_t place, const BatchRow& to) const {
    if (part.tokens == 0) return;
    const auto first = static_cast<size_t>(place);
    const auto count = static_cast<size_t>(part.tokens);
    const auto tokens = to.tokens.subspan(first, count);
    const auto targets = to.targets.subspan(first, count);
    store_.read(part.begin, tokens);
    std::ranges::copy(tokens.subspan(1), targets.begin());
    targets.back() = kIgnore;
    begin_anew(place, place + part.tokens, to);
    if (store_.all_targets()) return;
    std::vector<uint8_t> is_target(count - 1);
    store_.read_targets(part.begin + 1, is_target);
    for (size_t i = 0; i < is_target.size(); ++i) {
      if (is_target[i] == 0) targets[i] = kIgnore;
    }
  }

  TokenStore store_;
  WholeRows how_;
  RowUnits units_;
  RowPlan plan_;
  mutable std::once_flag rows_once_;
  mutable std::vector<uint32_t> row_of_;  ///< by unit, once row_of() was called
  bool chosen_tokens_ = true;  ///< of pairs, the chosen sides' tokens are targets too
};

}  // namespace

std::unique_ptr<TokenSource> whole_rows_source(const fs::path& path, const WholeRows& how,
                                               bool verify) {
  return std::make_unique<WholeRowsSource>(path, how, verify);
}

}  // namespace longhaul::data
