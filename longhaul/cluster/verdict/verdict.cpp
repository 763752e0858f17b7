#include "longhaul/cluster/verdict/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>

#include "longhaul/base/text.h"
#include "longhaul/run/place.h"

namespace longhaul::cluster {
namespace {

using run::Place;

constexpr const char* kTransfer = "send_recv";

/// The ranks of one group, summed up: tens of thousands of ranks cannot be compared in
/// pairs.
struct Meeting {
  std::vector<size_t> members;
  std::vector<size_t> transfers;  ///< members that wait in a transfer
  int64_t least_entered = std::numeric_limits<int64_t>::max();
  int64_t most_awaited = -1;
};

/// All groups of one name.
struct Meetings {
  std::map<Place, Meeting> at;
  Meeting anywhere;  ///< ranks without a place, which may be in any group

  /// Returns whether `predicate` holds for a meeting in which a rank of this place may
  /// be.
  template <typename Predicate>
  bool any(const std::optional<Place>& place, Predicate predicate) const {
    if (predicate(anywhere)) return true;
    if (place) {
      const auto here = at.find(*place);
      return here != at.end() && predicate(here->second);
    }
    return std::ranges::any_of(at,
                               [&](const auto& one) { return predicate(one.second); });
  }
};

class Judge {
 public:
  explicit Judge(const RankList& ranks) : ranks_(ranks) {
    for (const ObservedRank* rank : ranks) {
      places_.push_back(rank->place);
      if (rank->place) last_stage_ = std::max(last_stage_, rank->place->pp);
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (!waits(r)) continue;
      const auto [named, fresh] = meetings_.try_emplace(ranks[r]->waits_group);
      if (fresh) gather(named->first, named->second);
    }
  }

  HangVerdict judge() const {
    std::vector<size_t> guilty =
        those([&](size_t r) { return ranks_[r]->process != ProcessState::Running; });
    if (guilty.empty()) guilty = those([&](size_t r) { return !waits(r) && awaited(r); });
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
    return ranks_[r]->waits && ranks_[r]->process == ProcessState::Running;
  }
  bool in_transfer(size_t r, const std::string& group) const {
    return waits(r) && ranks_[r]->waits_group == group &&
           ranks_[r]->waits_verb == kTransfer;
  }
  /// Returns whether the rank `from` waits for the rank `to`.
  bool points_at(size_t from, size_t to) const;
  std::optional<Place> meeting_of(size_t r, const std::string& group) const;
  void gather(const std::string& group, Meetings& meetings) const;
  int64_t entered(size_t r, const std::string& group) const;
  bool awaited(size_t r) const;
  bool pointing(size_t r) const;
  HangVerdict name(const std::vector<size_t>& guilty) const;
  HangVerdict nobody() const;
  std::string names(const std::vector<size_t>& guilty) const;

  const RankList& ranks_;
  std::vector<std::optional<Place>> places_;
  int last_stage_ = 0;
  std::map<std::string, Meetings> meetings_;  ///< by name of a group in which ranks wait
};

/// Returns what a rank and the others in its group of this name have in common: two ranks
/// meet if the results are equal. A stage between the first and the last one meets nobody
/// in "tied". If the name is that of no kind of group, all ranks meet: then some ranks
/// are wrongly taken as waited for, but none is missed.
std::optional<Place> Judge::meeting_of(size_t r, const std::string& group) const {
  const auto& place = places_[r];
  const auto kind = run::group_of_name(group);
  if (!place || !kind) return place ? std::optional(Place{}) : std::nullopt;
  const bool between = place->pp > 0 && place->pp < last_stage_;
  if (*kind == run::GroupKind::Tied && between) return place;
  return run::without(*place, run::axes_of(*kind));
}

/// Returns the number of the newest collective of this group to which the rank has come.
int64_t Judge::entered(size_t r, const std::string& group) const {
  const ObservedRank& rank = *ranks_[r];
  if (rank.waits && rank.waits_group == group && rank.waits_verb != kTransfer) {
    return rank.waits_number;
  }
  const auto found = rank.entered.find(group);
  return found == rank.entered.end() ? -1 : found->second;
}

void Judge::gather(const std::string& group, Meetings& meetings) const {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const auto place = meeting_of(r, group);
    Meeting& meeting = place ? meetings.at[*place] : meetings.anywhere;
    meeting.members.push_back(r);
    meeting.least_entered = std::min(meeting.least_entered, entered(r, group));
    if (!waits(r) || ranks_[r]->waits_group != group) continue;
    if (ranks_[r]->waits_verb == kTransfer) {
      meeting.transfers.push_back(r);
    } else {
      meeting.most_awaited = std::max(meeting.most_awaited, ranks_[r]->waits_number);
    }
  }
}

/// Returns whether any rank waits for this one.
bool Judge::awaited(size_t r) const {
  return std::ranges::any_of(meetings_, [&](const auto& named) {
    const auto& [group, meetings] = named;
    const int64_t newest = entered(r, group);
    return meetings.any(meeting_of(r, group), [&](const Meeting& meeting) {
      return meeting.most_awaited > newest ||
             std::ranges::any_of(meeting.transfers,
                                 [&](size_t other) { return points_at(other, r); });
    });
  });
}

/// Returns whether this rank waits for any other.
bool Judge::pointing(size_t r) const {
  const ObservedRank& rank = *ranks_[r];
  const auto named = meetings_.find(rank.waits_group);
  if (named == meetings_.end()) return false;
  return named->second.any(meeting_of(r, rank.waits_group), [&](const Meeting& meeting) {
    if (rank.waits_verb != kTransfer) return meeting.least_entered < rank.waits_number;
    return std::ranges::any_of(meeting.members,
                               [&](size_t other) { return points_at(r, other); });
  });
}

bool Judge::points_at(size_t from, size_t to) const {
  const ObservedRank& waiter = *ranks_[from];
  if (from == to) return false;
  const auto& a = places_[from];
  const auto& b = places_[to];
  const std::string& group = waiter.waits_group;
  if (a && b && meeting_of(from, group) != meeting_of(to, group)) return false;
  if (waiter.waits_verb == kTransfer && group == run::group_name(run::GroupKind::Pp)) {
    return !a || !b || std::abs(a->pp - b->pp) == 1;
  }
  // In groups other than 'pp' any two ranks may exchange messages. A rank that is in a
  // transfer of the group has arrived.
  if (waiter.waits_verb == kTransfer) return !in_transfer(to, group);
  return entered(to, group) < waiter.waits_number;
}

std::string Judge::names(const std::vector<size_t>& guilty) const {
  constexpr size_t kNamed = 4;
  std::vector<std::string> names;
  for (const size_t r : guilty) names.push_back(ranks_[r]->name());
  return listed(names, kNamed);
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
  for (const size_t r : guilty) verdict.ranks.push_back(ranks_[r]->rank);
  const std::vector<size_t> waiting =
      those([&](size_t r) { return waits(r) && !std::ranges::binary_search(guilty, r); });
  const ObservedRank* longest = nullptr;
  for (const size_t r : waiting) {
    if (!points_at(r, guilty.front())) continue;
    if (longest == nullptr || ranks_[r]->waits_age > longest->waits_age) {
      longest = ranks_[r];
    }
  }
  const std::string state = state_of(*ranks_[guilty.front()]);
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
  const ObservedRank& oldest = **std::ranges::max_element(
      ranks_, {}, [](const ObservedRank* rank) { return rank->waits_age; });
  bool circle = false;
  for (size_t r = 0; r < ranks_.size(); ++r) circle = circle || pointing(r);
  return {{},
          fmt::format(
              "all {} ranks wait, the longest {} in {} for {:.0f} s; {}", ranks_.size(),
              oldest.name(), oldest.waits_for, oldest.waits_age,
              circle ? "they wait for each other, because their calls differ"
                     : "all have entered the call: look at the network between them")};
}

}  // namespace

HangVerdict judge_hang(const RankList& ranks) {
  if (ranks.empty()) return {{}, "no rank has begun"};
  return Judge(ranks).judge();
}

}  // namespace longhaul::cluster
