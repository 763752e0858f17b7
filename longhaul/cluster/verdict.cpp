#include "longhaul/cluster/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

namespace longhaul::cluster {
namespace {

struct Place {
  int pp = 0;
  int dp = 0;
  int cp = 0;
  int tp = 0;
};

/// Of "pp 1 dp 0 cp 0 tp 1"; nothing for a rank that has not come so far.
std::optional<Place> place_of(const ObservedRank& rank) {
  std::istringstream text(rank.coordinates);
  Place place;
  const std::array<std::pair<const char*, int*>, 4> axes = {
      {{"pp", &place.pp}, {"dp", &place.dp}, {"cp", &place.cp}, {"tp", &place.tp}}};
  for (const auto& [axis, index] : axes) {
    std::string word;
    if (!(text >> word >> *index) || word != axis) return std::nullopt;
  }
  return place;
}

/// Do two ranks meet in the group of this name? Of names that are no axis all ranks that
/// may are taken: then too many are pointed at, but none is missed.
bool meet(const std::string& group, const Place& a, const Place& b) {
  const bool pp = a.pp == b.pp;
  const bool dp = a.dp == b.dp;
  const bool cp = a.cp == b.cp;
  const bool tp = a.tp == b.tp;
  if (group == "pp") return dp && cp && tp;
  if (group == "dp") return pp && cp && tp;
  if (group == "cp") return pp && dp && tp;
  if (group == "tp") return pp && dp && cp;
  if (group == "data" || group == "shard" || group == "replicas") return pp && tp;
  return true;
}

constexpr const char* kTransfer = "send_recv";

class Judge {
 public:
  explicit Judge(const std::vector<ObservedRank>& ranks) : ranks_(ranks) {
    for (const ObservedRank& rank : ranks) places_.push_back(place_of(rank));
  }

  HangVerdict judge() const {
    std::vector<size_t> guilty =
        those([&](size_t r) { return ranks_[r].process != ProcessState::Running; });
    if (guilty.empty()) {
      guilty = those([&](size_t r) { return !waits(r) && awaited(r); });
    }
    if (guilty.empty()) guilty = those([&](size_t r) { return !waits(r); });
    if (guilty.empty())
      guilty = those([&](size_t r) { return awaited(r) && !pointing(r); });
    return guilty.empty() ? nobody() : name(guilty);
  }

 private:
  template <typename Predicate>
  std::vector<size_t> those(Predicate predicate) const {
    std::vector<size_t> found;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (predicate(r)) found.push_back(r);
    }
    return found;
  }
  bool waits(size_t r) const {
    return ranks_[r].waits && ranks_[r].process == ProcessState::Running;
  }
  /// Does `from` wait for `to`?
  bool points_at(size_t from, size_t to) const;
  bool awaited(size_t r) const {
    for (size_t other = 0; other < ranks_.size(); ++other) {
      if (waits(other) && points_at(other, r)) return true;
    }
    return false;
  }
  bool pointing(size_t r) const {
    for (size_t other = 0; other < ranks_.size(); ++other) {
      if (points_at(r, other)) return true;
    }
    return false;
  }
  HangVerdict name(const std::vector<size_t>& guilty) const;
  HangVerdict nobody() const;
  std::string names(const std::vector<size_t>& guilty) const;

  const std::vector<ObservedRank>& ranks_;
  std::vector<std::optional<Place>> places_;
};

bool Judge::points_at(size_t from, size_t to) const {
  const ObservedRank& waiter = ranks_[from];
  const ObservedRank& other = ranks_[to];
  if (from == to) return false;
  const auto& a = places_[from];
  const auto& b = places_[to];
  if (a && b && !meet(waiter.waits_group, *a, *b)) return false;
  if (waiter.waits_verb == kTransfer) return !a || !b || std::abs(a->pp - b->pp) == 1;
  if (other.waits && other.waits_group == waiter.waits_group &&
      other.waits_verb != kTransfer) {
    return other.waits_number < waiter.waits_number;
  }
  const auto entered = other.entered.find(waiter.waits_group);
  return entered == other.entered.end() || entered->second < waiter.waits_number;
}

std::string Judge::names(const std::vector<size_t>& guilty) const {
  constexpr size_t kNamed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, guilty.size()); ++i) {
    text += (i == 0 ? "" : ", ") + ranks_[guilty[i]].name();
  }
  if (guilty.size() > kNamed) text += fmt::format(" and {} more", guilty.size() - kNamed);
  return text;
}

std::string state_of(const ObservedRank& rank) {
  if (rank.process == ProcessState::Stopped) return "stopped by a signal";
  if (rank.process == ProcessState::Gone) return "gone";
  if (rank.waits) return fmt::format("waiting in {}", rank.waits_for);
  return fmt::format("in no collective for {:.0f} s, step {} phase {}", rank.progress_age,
                     rank.step, rank.phase);
}

HangVerdict Judge::name(const std::vector<size_t>& guilty) const {
  HangVerdict verdict;
  for (const size_t r : guilty) verdict.ranks.push_back(ranks_[r].rank);
  const std::vector<size_t> waiting =
      those([&](size_t r) { return waits(r) && std::ranges::count(guilty, r) == 0; });
  const ObservedRank* longest = nullptr;
  for (const size_t r : waiting) {
    if (!points_at(r, guilty.front())) continue;
    if (longest == nullptr || ranks_[r].waits_age > longest->waits_age) {
      longest = &ranks_[r];
    }
  }
  const std::string state = state_of(ranks_[guilty.front()]);
  const char* first = guilty.size() == 1 ? "it" : "the first";
  if (longest == nullptr) {
    verdict.text = fmt::format("{} stand{} still; {} is {}", names(guilty),
                               guilty.size() == 1 ? "s" : "", first, state);
    return verdict;
  }
  verdict.text = fmt::format(
      "{} {} not entered {}; {} other{} for {:.0f} s; {} is {}", names(guilty),
      guilty.size() == 1 ? "has" : "have", longest->waits_for, waiting.size(),
      waiting.size() == 1 ? " waits" : "s wait", longest->waits_age, first, state);
  return verdict;
}

HangVerdict Judge::nobody() const {
  const ObservedRank& oldest = *std::ranges::max_element(
      ranks_, {}, [](const ObservedRank& rank) { return rank.waits_age; });
  bool circle = false;
  for (size_t r = 0; r < ranks_.size(); ++r) circle = circle || pointing(r);
  return {{},
          fmt::format("all {} ranks wait, the longest {} in {} for {:.0f} s; {}",
                      ranks_.size(), oldest.name(), oldest.waits_for, oldest.waits_age,
                      circle ? "they wait for each other: their calls differ"
                             : "all have entered it: look at the network between them")};
}

}  // namespace

HangVerdict judge_hang(const std::vector<ObservedRank>& ranks) {
  if (ranks.empty()) return {{}, "no rank has begun"};
  return Judge(ranks).judge();
}

}  // namespace longhaul::cluster
