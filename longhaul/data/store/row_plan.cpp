#include "longhaul/data/store/row_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

constexpr std::string_view kPlanFormat = "LHROWS1\n";
constexpr size_t kHashDigits = 32;
/// Tokens whose targets are looked at in one go.
constexpr int64_t kTargetsAtOnce = int64_t{1} << 12;

/// The beginning of a plan's file. By row the place behind its last unit follows, then
/// the units, 4 bytes each, then the hash of all that.
struct PlanHeader {
  std::array<char, 8> format;
  std::array<char, kHashDigits> key;
  RowCounts counts;
};
static_assert(std::is_trivially_copyable_v<PlanHeader> && sizeof(PlanHeader) == 120);

void put_words(std::string& bytes, std::span<const uint32_t> words) {
  const auto raw = std::as_bytes(words);
  bytes.append(reinterpret_cast<const char*>(raw.data()), raw.size());
}

void note(RowCounts::Some& some, int64_t unit) {
  if (some.count++ == 0) some.first = unit;
}

/// Returns the length of each unit in a row; 0 where it is left out.
std::vector<int32_t> lengths_of(const RowUnits& units, RowCounts& counts) {
  std::vector<int32_t> lengths(static_cast<size_t>(units.size()), 0);
  for (int64_t number = 0; number < units.size(); ++number) {
    const RowUnits::Unit unit = units.at(number);
    const int64_t kept = unit.num_kept();
    if (kept == 0 && unit.tokens > 0) {
      note(counts.too_long, number);
    } else if (!units.has_targets(unit)) {
      note(counts.no_target, number);
    } else {
      if (kept < unit.tokens) note(counts.cut, number);
      counts.tokens_cut += unit.tokens - kept;
      counts.tokens += kept;
      ++counts.units;
      lengths[static_cast<size_t>(number)] = static_cast<int32_t>(kept);
    }
  }
  return lengths;
}

/// Makes the content of a plan's file.
std::string plan_bytes(const RowUnits& units, int64_t seq_len, const std::string& key) {
  PlanHeader header = {};
  std::ranges::copy(kPlanFormat, header.format.begin());
  std::ranges::copy(key, header.key.begin());
  const std::vector<uint32_t> row_of =
      best_fit_rows(lengths_of(units, header.counts), seq_len);
  std::vector<uint32_t> ends;
  for (const uint32_t row : row_of) {
    if (row == kNoRow) continue;
    if (row >= ends.size()) ends.resize(row + 1, 0);
    ++ends[row];
  }
  header.counts.rows = std::ssize(ends);
  // First each row's end is where its first unit comes, and moves on with each unit.
  uint32_t begin = 0;
  for (uint32_t& end : ends) begin += std::exchange(end, begin);
  std::vector<uint32_t> in_rows(begin);
  for (size_t unit = 0; unit < row_of.size(); ++unit) {
    if (row_of[unit] == kNoRow) continue;
    in_rows[ends[row_of[unit]]++] = static_cast<uint32_t>(unit);
  }
  std::string bytes;
  bytes.reserve(sizeof(header) + 4 * (ends.size() + in_rows.size()) + kHashDigits);
  bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
  put_words(bytes, ends);
  put_words(bytes, in_rows);
  bytes += hash_hex(bytes);
  return bytes;
}

}  // namespace

RowUnits::RowUnits(const TokenStore& store, const WholeRows& how)
    : store_(store), how_(how), sides_(store.info().kind == "pairs" ? 2 : 1) {
  if (size() < int64_t{kNoRow}) return;
  fail_input("data", "{}: {} {}; rows can be made of at most {}: {}",
             store.path().string(), size(), sides_ == 2 ? "pairs" : "documents",
             kNoRow - 1,
             sides_ == 2
                 ? "give 'longhaul data build' the files of pairs in parts, and name the "
                   "stores of all parts in data.train"
                 : "split the store with 'longhaul data split', or set data.pack = "
                   "\"stream\"");
}

RowUnits::Unit RowUnits::at(int64_t number) const {
  const int64_t first = number * static_cast<int64_t>(sides_);
  Unit unit;
  int64_t begin = first == 0 ? 0 : store_.document_end(first - 1);
  for (size_t side = 0; side < sides_; ++side) {
    const int64_t end = store_.document_end(first + static_cast<int64_t>(side));
    if (end < begin) {
      fail_input("data",
                 "{}: document {} ends at token {}, but begins at {}: the store is "
                 "damaged; 'longhaul verify' finds the file",
                 store_.path().string(), first + static_cast<int64_t>(side), end, begin);
    }
    unit.kept[side] = {begin, end - begin};
    unit.tokens += end - begin;
    begin = end;
  }
  if (unit.tokens <= how_.seq_len) return unit;
  const int64_t most = how_.cut ? how_.seq_len / static_cast<int64_t>(sides_) : 0;
  for (RowPart& part : unit.kept) part.tokens = std::min(part.tokens, most);
  return unit;
}

bool RowUnits::has_targets(const Unit& unit) const {
  std::vector<uint8_t> is_target;
  for (size_t side = 0; side < sides_; ++side) {
    const RowPart& part = unit.kept[side];
    bool found = part.tokens > 1 && store_.all_targets();
    for (int64_t i = 1; i < part.tokens && !found; i += kTargetsAtOnce) {
      is_target.resize(static_cast<size_t>(std::min(kTargetsAtOnce, part.tokens - i)));
      store_.read_targets(part.begin + i, is_target);
      found = std::ranges::find(is_target, 1) != is_target.end();
    }
    if (!found) return false;
  }
  return true;
}

std::vector<uint32_t> best_fit_rows(std::span<const int32_t> lengths, int64_t room) {
  // High bits hold the room that an item alone leaves in a row, low bits its number.
  std::vector<uint64_t> order;
  order.reserve(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    LH_CHECK(lengths[i] > 0 && lengths[i] <= room, "data", "{} tokens in a row of {}",
             lengths[i], room);
    order.push_back((static_cast<uint64_t>(room - lengths[i]) << 32) | i);
  }
  std::ranges::sort(order);
  std::vector<uint32_t> row_of(lengths.size(), kNoRow);
  // Rows with the same remaining room form a list: `newest` has its head, and `before`
  // the row that follows.
  std::map<int64_t, uint32_t> newest;
  std::vector<uint32_t> before;
  for (const uint64_t one : order) {
    const auto item = static_cast<uint32_t>(one);
    const int64_t length = lengths[item];
    const auto fits = newest.lower_bound(length);
    int64_t left = room;
    auto row = static_cast<uint32_t>(before.size());
    if (fits == newest.end()) {
      before.push_back(kNoRow);
    } else {
      std::tie(left, row) = *fits;
      fits->second = before[row];
      if (fits->second == kNoRow) newest.erase(fits);
    }
    row_of[item] = row;
    if (left == length) continue;
    const auto [place, fresh] = newest.try_emplace(left - length, kNoRow);
    before[row] = std::exchange(place->second, row);
  }
  std::vector<uint32_t>& number = before;  // by row, its number among rows by first item
  std::ranges::fill(number, kNoRow);
  uint32_t numbered = 0;
  for (uint32_t& row : row_of) {
    if (row == kNoRow) continue;
    if (number[row] == kNoRow) number[row] = numbered++;
    row = number[row];
  }
  return row_of;
}

RowPlan::RowPlan(const RowUnits& units, const TokenStore& store, const WholeRows& how)
    : key_(hash_hex(fmt::format("{}{} {} {} {}", kPlanFormat, store.info().fingerprint,
                                how.seq_len, how.cut ? "cut" : "drop", units.word()))) {
  if (!how.cache.empty()) {
    file_ = how.cache / fmt::format("rows_{}.bin", key_.substr(0, 16));
    if (is_seen_file(file_)) {
      const auto mapped = std::make_shared<const MappedFile>(file_);
      if (take(mapped->bytes(), mapped)) return;
    }
  }
  const auto made =
      std::make_shared<const std::string>(plan_bytes(units, how.seq_len, key_));
  const bool good = take(std::as_bytes(std::span(*made)), made);
  LH_CHECK(good, "data", "the plan of {} rows is not its own", counts_.rows);
  if (!how.keeps_new) file_.clear();
  if (file_.empty()) return;
  fs::create_directories(how.cache);
  write_text_atomic(file_, *made);
}

bool RowPlan::take(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  if (bytes.size() < sizeof(PlanHeader) + kHashDigits) return false;
  const auto text = [&](size_t begin, size_t size) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()) + begin, size);
  };
  const size_t content = bytes.size() - kHashDigits;
  PlanHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto words = static_cast<uint64_t>((content - sizeof(header)) / 4);
  const auto rows = static_cast<uint64_t>(header.counts.rows);
  const auto units = static_cast<uint64_t>(header.counts.units);
  if (text(0, kPlanFormat.size()) != kPlanFormat ||
      text(kPlanFormat.size(), kHashDigits) != key_ || rows > words ||
      words - rows != units || content != sizeof(header) + 4 * words ||
      text(content, kHashDigits) != hash_hex(bytes.first(content))) {
    return false;
  }
  owner_ = std::move(owner);
  counts_ = header.counts;
  const auto* const at =
      reinterpret_cast<const uint32_t*>(bytes.data() + sizeof(PlanHeader));
  ends_ = {at, rows};
  units_ = {at + rows, units};
  return true;
}

std::span<const uint32_t> RowPlan::units_of(int64_t row) const {
  const auto at = static_cast<size_t>(row);
  const size_t begin = at == 0 ? 0 : ends_[at - 1];
  const size_t end = ends_[at];
  if (begin <= end && end <= units_.size()) return units_.subspan(begin, end - begin);
  fail_input("data", "{}: row {} holds units [{}, {}) of {}: the plan is no plan; {}",
             file_.string(), row, begin, end, units_.size(), kRemovePlan);
}

}  // namespace longhaul::data
