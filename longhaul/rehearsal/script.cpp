#include "longhaul/rehearsal/script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::rehearsal {
namespace {

constexpr size_t kLanes = 3;

/// What follows from a script alone.
struct Reading {
  explicit Reading(const Script& script) {
    place.resize(script.operations.size());
    behind.resize(script.operations.size());
    for (const Act& act : script.acts) {
      if (act.kind == Act::Kind::Drain) continue;
      const Operation& operation = script.operations[act.operation];
      if (act.kind == Act::Kind::Order) orders.push_back(act.operation);
      if (act.kind != Act::Kind::Start) continue;
      const auto lane = kLanes * static_cast<size_t>(operation.group) +
                        static_cast<size_t>(operation.lane);
      if (lane >= lanes.size()) lanes.resize(lane + 1);
      place[act.operation] = {lane, lanes[lane].size()};
      lanes[lane].push_back(act.operation);
      // Memory of the host does not wait for the device.
      behind[act.operation] = operation.lane == Lane::Host ? 0 : orders.size();
    }
  }

  std::vector<std::vector<uint32_t>> lanes;      ///< operations, by group and lane
  std::vector<std::pair<size_t, size_t>> place;  ///< of an operation: lane, index in it
  std::vector<size_t> behind;    ///< orders that come before an operation's start
  std::vector<uint32_t> orders;  ///< operations that the device waits for, in order
};

/// Where a rank has come to.
struct Progress {
  size_t act = 0;
  size_t ordered = 0;  ///< orders that the host has given
  size_t passed = 0;   ///< orders that the device has passed
  struct LaneProgress {
    size_t started = 0, posted = 0, done = 0;
    size_t missing = 0;  ///< messages of the posted operation that have no counterpart
  };
  std::vector<LaneProgress> lanes;
};

class Match {
 public:
  Match(const std::vector<ScriptedRank>& ranks, const std::vector<GroupMembers>& groups)
      : ranks_(ranks), groups_(groups), at_(ranks.size()), local_(groups.size()) {
    for (const ScriptedRank& rank : ranks) {
      readings_.try_emplace(rank.script, *rank.script);
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const int member : groups[g].ranks) {
        const std::vector<int>& of = ranks[static_cast<size_t>(member)].groups;
        const auto found = std::ranges::find(of, static_cast<int>(g));
        LH_ASSERT(found != of.end(), "rank {} is not in group {}", member, g);
        local_[g].push_back(static_cast<size_t>(found - of.begin()));
      }
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      reading_.push_back(&readings_.at(ranks[r].script));
      at_[r].lanes.resize(reading_[r]->lanes.size());
    }
    arrived_.resize(kLanes * groups.size());
  }

  std::optional<std::string> find() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const Lane lane : {Lane::Host, Lane::Collectives}) {
        if (auto wrong = compare(g, lane)) return wrong;
      }
      for (const Lane lane : {Lane::Host, Lane::Transfers}) {
        if (auto wrong = compare_messages(g, lane)) return wrong;
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) ready_.push_back(r);
    while (!ready_.empty()) {
      const size_t rank = ready_.front();
      ready_.pop_front();
      run(rank);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (stuck_at(r)) return circle_from(r);
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (auto wrong = compare_orders(g)) return wrong;
    }
    return {};
  }

 private:
  const Operation& operation(size_t rank, uint32_t number) const {
    return ranks_[rank].script->operations[number];
  }
  std::string rank_text(size_t rank) const {
    return fmt::format("rank {} ({})", rank, ranks_[rank].place);
  }
  std::string text_of(size_t rank, uint32_t number) const {
    const Operation& o = operation(rank, number);
    const auto& group =
        groups_[static_cast<size_t>(ranks_[rank].groups[static_cast<size_t>(o.group)])];
    const auto index = reading_[rank]->place[number].second;
    const std::vector<std::string>& texts = ranks_[rank].script->texts;
    std::string text =
        fmt::format("{} number {} of '{}' ({} bytes of {}", comm::verb_name(o.verb),
                    index + 1, group.name, o.bytes, format::dtype_name(o.dtype));
    if (o.verb == comm::Verb::AllReduce || o.verb == comm::Verb::ReduceScatter) {
      text += o.op == comm::ReduceOp::Max ? ", maximum" : ", sum";
    }
    if (o.verb == comm::Verb::Broadcast) text += fmt::format(", root {}", o.root);
    for (const Message& m : o.messages) {
      text += fmt::format(", {} {} {} bytes", m.sends ? "to" : "from",
                          group.ranks[static_cast<size_t>(m.peer)], m.bytes);
    }
    text += fmt::format("; step {}", o.step);
    for (const int32_t part : {o.phase, o.label}) {
      if (!texts[static_cast<size_t>(part)].empty()) {
        text += ", " + texts[static_cast<size_t>(part)];
      }
    }
    return text + ")";
  }
  const std::vector<uint32_t>& lane_of(size_t group, size_t member, Lane lane) const {
    static const std::vector<uint32_t> none;
    const auto rank = static_cast<size_t>(groups_[group].ranks[member]);
    const size_t number = kLanes * local_[group][member] + static_cast<size_t>(lane);
    const auto& lanes = reading_[rank]->lanes;
    return number < lanes.size() ? lanes[number] : none;
  }

  /// Compares the collectives of each member with those of the first.
  std::optional<std::string> compare(size_t group, Lane lane) const {
    const std::vector<int>& members = groups_[group].ranks;
    const std::vector<uint32_t>& first = lane_of(group, 0, lane);
    const auto first_rank = static_cast<size_t>(members[0]);
    for (size_t m = 1; m < members.size(); ++m) {
      const auto rank = static_cast<size_t>(members[m]);
      const std::vector<uint32_t>& mine = lane_of(group, m, lane);
      if (&mine == &first) continue;
      for (size_t i = 0; i < std::min(first.size(), mine.size()); ++i) {
        const Operation &a = operation(first_rank, first[i]),
                        &b = operation(rank, mine[i]);
        if (a.verb == comm::Verb::SendRecv && b.verb == a.verb) continue;
        if (a.verb == b.verb && a.bytes == b.bytes && a.dtype == b.dtype &&
            a.op == b.op && a.root == b.root) {
          continue;
        }
        return fmt::format("operations that do not match: {} calls {}, but {} calls {}",
                           rank_text(first_rank), text_of(first_rank, first[i]),
                           rank_text(rank), text_of(rank, mine[i]));
      }
    }
    return {};
  }

  /// Compares what members send with what their peers expect.
  std::optional<std::string> compare_messages(size_t group, Lane lane) const {
    using Sizes = std::vector<std::pair<int64_t, uint32_t>>;
    std::map<std::pair<size_t, size_t>, std::array<Sizes, 2>> pairs;  // [sent, received]
    const std::vector<int>& members = groups_[group].ranks;
    for (size_t m = 0; m < members.size(); ++m) {
      const auto rank = static_cast<size_t>(members[m]);
      for (const uint32_t number : lane_of(group, m, lane)) {
        for (const Message& message : operation(rank, number).messages) {
          const auto peer = static_cast<size_t>(message.peer);
          const auto pair = message.sends ? std::pair(m, peer) : std::pair(peer, m);
          pairs[pair][message.sends ? 0 : 1].emplace_back(message.bytes, number);
        }
      }
    }
    for (const auto& [pair, sizes] : pairs) {
      const auto from = static_cast<size_t>(members[pair.first]);
      const auto to = static_cast<size_t>(members[pair.second]);
      for (size_t i = 0; i < std::min(sizes[0].size(), sizes[1].size()); ++i) {
        if (sizes[0][i].first == sizes[1][i].first) continue;
        return fmt::format(
            "messages that do not match: {} sends {} bytes in {}, but {} "
            "expects {} bytes in {}",
            rank_text(from), sizes[0][i].first, text_of(from, sizes[0][i].second),
            rank_text(to), sizes[1][i].first, text_of(to, sizes[1][i].second));
      }
    }
    return {};
  }

  /// Returns a rank's collectives of the device in groups that another rank is in too, in
  /// the order of their starts.
  std::vector<uint32_t> shared_starts(size_t rank, size_t other) const {
    const std::vector<int>& mine = ranks_[rank].groups;
    const std::vector<int>& its = ranks_[other].groups;
    std::vector<bool> shared;
    shared.reserve(mine.size());
    for (const int group : mine) {
      shared.push_back(std::ranges::find(its, group) != its.end());
    }
    const std::vector<Operation>& operations = ranks_[rank].script->operations;
    std::vector<uint32_t> found;
    for (size_t i = 0; i < operations.size(); ++i) {
      if (operations[i].lane != Lane::Collectives) continue;
      if (shared[static_cast<size_t>(operations[i].group)]) {
        found.push_back(static_cast<uint32_t>(i));
      }
    }
    return found;
  }

  /// Compares the order in which each member starts collectives of several groups with
  /// that of the first member. Libraries of GPUs may hang where the orders differ.
  std::optional<std::string> compare_orders(size_t group) {
    const std::vector<int>& members = groups_[group].ranks;
    const auto first = static_cast<size_t>(members[0]);
    const auto group_of = [&](size_t rank, uint32_t number) {
      const int local = operation(rank, number).group;
      return ranks_[rank].groups[static_cast<size_t>(local)];
    };
    for (size_t m = 1; m < members.size(); ++m) {
      const auto rank = static_cast<size_t>(members[m]);
      if (!ordered_
               .insert({ranks_[first].script, ranks_[rank].script, groups_[group].name})
               .second) {
        continue;
      }
      const std::vector<uint32_t> a = shared_starts(first, rank);
      const std::vector<uint32_t> b = shared_starts(rank, first);
      for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        if (group_of(first, a[i]) == group_of(rank, b[i])) continue;
        return fmt::format(
            "collectives of two groups that start in different orders: {} starts {}, but "
            "{} starts {}",
            rank_text(first), text_of(first, a[i]), rank_text(rank), text_of(rank, b[i]));
      }
    }
    return {};
  }

  bool is_done(size_t rank, uint32_t number) const {
    const auto [lane, index] = reading_[rank]->place[number];
    return at_[rank].lanes[lane].done > index;
  }

  /// Lets a rank go on until its host and its device wait.
  void run(size_t rank) {
    Progress& at = at_[rank];
    const Reading& reading = *reading_[rank];
    const std::vector<Act>& acts = ranks_[rank].script->acts;
    const auto pass = [&] {
      while (at.passed < at.ordered && is_done(rank, reading.orders[at.passed])) {
        ++at.passed;
      }
      return at.passed == at.ordered;
    };
    for (; at.act < acts.size(); ++at.act) {
      const Act& act = acts[at.act];
      if (act.kind == Act::Kind::Drain && !pass()) break;
      if (act.kind == Act::Kind::Wait && !is_done(rank, act.operation)) break;
      if (act.kind == Act::Kind::Order) ++at.ordered;
      if (act.kind == Act::Kind::Start) {
        ++at.lanes[reading.place[act.operation].first].started;
      }
    }
    pass();
    for (size_t lane = 0; lane < at.lanes.size(); ++lane) {
      Progress::LaneProgress& here = at.lanes[lane];
      if (here.posted > here.done || here.started == here.done) continue;
      const uint32_t head = reading.lanes[lane][here.done];
      if (at.passed >= reading.behind[head]) post(rank, lane, head);
    }
  }

  void end_operation(size_t rank, size_t lane) {
    ++at_[rank].lanes[lane].done;
    ready_.push_back(rank);
  }

  /// Notes that the rank has come to the operation at the head of its lane.
  void post(size_t rank, size_t lane, uint32_t number) {
    const Operation& o = operation(rank, number);
    ++at_[rank].lanes[lane].posted;
    const auto group =
        static_cast<size_t>(ranks_[rank].groups[static_cast<size_t>(o.group)]);
    const std::vector<int>& members = groups_[group].ranks;
    if (o.verb != comm::Verb::SendRecv) {
      size_t& arrived = arrived_[kLanes * group + static_cast<size_t>(o.lane)];
      if (++arrived < members.size()) return;
      arrived = 0;
      for (size_t m = 0; m < members.size(); ++m) {
        end_operation(static_cast<size_t>(members[m]),
                      kLanes * local_[group][m] + static_cast<size_t>(o.lane));
      }
      return;
    }
    const auto me = static_cast<size_t>(
        std::ranges::find(members, static_cast<int>(rank)) - members.begin());
    at_[rank].lanes[lane].missing += o.messages.size();
    for (const Message& message : o.messages) {
      const auto peer = static_cast<size_t>(message.peer);
      const auto [from, to] = message.sends ? std::pair(me, peer) : std::pair(peer, me);
      int64_t& ahead = ahead_[{group, static_cast<size_t>(o.lane), from, to}];
      const bool meets = message.sends ? ahead < 0 : ahead > 0;
      ahead += message.sends ? 1 : -1;
      if (!meets) continue;
      --at_[rank].lanes[lane].missing;
      const auto other = static_cast<size_t>(members[peer]);
      const size_t its = kLanes * local_[group][peer] + static_cast<size_t>(o.lane);
      if (--at_[other].lanes[its].missing == 0) end_operation(other, its);
    }
    if (at_[rank].lanes[lane].missing == 0) end_operation(rank, lane);
  }

  /// Returns the operation that a rank waits for: the rank has come to it and others have
  /// not. Returns nothing for a rank that is at its end.
  std::optional<uint32_t> stuck_at(size_t rank) const {
    const Progress& at = at_[rank];
    const Reading& reading = *reading_[rank];
    const std::vector<Act>& acts = ranks_[rank].script->acts;
    std::optional<uint32_t> found;
    if (at.act < acts.size()) {
      found = acts[at.act].kind == Act::Kind::Drain ? reading.orders[at.passed]
                                                    : acts[at.act].operation;
    }
    for (size_t lane = 0; !found && lane < at.lanes.size(); ++lane) {
      if (at.lanes[lane].started > at.lanes[lane].done) {
        found = reading.lanes[lane][at.lanes[lane].done];
      }
    }
    // The operation may stand behind another one of its lane, or behind the device.
    for (size_t looks = 0; found && looks < acts.size() + 2; ++looks) {
      const size_t lane = reading.place[*found].first;
      const Progress::LaneProgress& here = at.lanes[lane];
      found = reading.lanes[lane][here.done];
      if (here.posted > here.done) break;
      found = reading.orders[at.passed];
    }
    return found;
  }

  /// Returns a rank that has not come to an operation that `rank` waits in.
  size_t missing_in(size_t rank, uint32_t number) const {
    const Operation& o = operation(rank, number);
    const auto group =
        static_cast<size_t>(ranks_[rank].groups[static_cast<size_t>(o.group)]);
    const std::vector<int>& members = groups_[group].ranks;
    if (o.verb == comm::Verb::SendRecv) {
      const auto me = static_cast<size_t>(
          std::ranges::find(members, static_cast<int>(rank)) - members.begin());
      for (const Message& message : o.messages) {
        const auto peer = static_cast<size_t>(message.peer);
        const auto [from, to] = message.sends ? std::pair(me, peer) : std::pair(peer, me);
        const auto ahead = ahead_.find({group, static_cast<size_t>(o.lane), from, to});
        if (ahead != ahead_.end() &&
            (message.sends ? ahead->second > 0 : ahead->second < 0)) {
          return static_cast<size_t>(members[peer]);
        }
      }
    }
    const size_t index = reading_[rank]->place[number].second;
    for (size_t m = 0; m < members.size(); ++m) {
      const auto other = static_cast<size_t>(members[m]);
      const size_t lane = kLanes * local_[group][m] + static_cast<size_t>(o.lane);
      if (lane >= at_[other].lanes.size() || at_[other].lanes[lane].posted <= index) {
        return other;
      }
    }
    return rank;
  }

  std::string circle_from(size_t rank) const {
    std::vector<size_t> seen;
    std::vector<std::string> lines;
    while (std::ranges::find(seen, rank) == seen.end()) {
      seen.push_back(rank);
      const auto number = stuck_at(rank);
      if (!number) {
        return fmt::format(
            "a rank waits for an operation that another never starts:{}\n  "
            "{} has come to its end",
            fmt::join(lines, ""), rank_text(rank));
      }
      const size_t other = missing_in(rank, *number);
      lines.push_back(fmt::format("\n  {} waits in {} for rank {}", rank_text(rank),
                                  text_of(rank, *number), other));
      rank = other;
    }
    // The first ranks may only wait for a rank of the circle.
    const auto outside = std::ranges::find(seen, rank) - seen.begin();
    lines.erase(lines.begin(), lines.begin() + outside);
    return fmt::format("a deadlock: {} ranks wait for each other:{}", lines.size(),
                       fmt::join(lines, ""));
  }

  const std::vector<ScriptedRank>& ranks_;
  const std::vector<GroupMembers>& groups_;
  std::map<const Script*, Reading> readings_;
  std::vector<const Reading*> reading_;     // by rank
  std::vector<Progress> at_;                // by rank
  std::vector<std::vector<size_t>> local_;  // by group and member: the rank's own number
  std::vector<size_t> arrived_;             // by group and lane
  std::map<std::tuple<size_t, size_t, size_t, size_t>, int64_t>
      ahead_;  // sends - receives
  std::deque<size_t> ready_;
  /// Pairs of scripts, by the name of a group, whose orders were compared.
  std::set<std::tuple<const Script*, const Script*, std::string>> ordered_;
};

}  // namespace

int32_t Script::number_of(const std::string& text) {
  const auto found = std::find(texts.rbegin(), texts.rend(), text);
  if (found != texts.rend()) return static_cast<int32_t>(texts.rend() - found) - 1;
  texts.push_back(text);
  return static_cast<int32_t>(texts.size()) - 1;
}

std::optional<std::string> find_mismatch(const std::vector<ScriptedRank>& ranks,
                                         const std::vector<GroupMembers>& groups) {
  return Match(ranks, groups).find();
}

}  // namespace longhaul::rehearsal
