#include "longhaul/cluster/agent/succession.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <set>
#include <utility>
#include <vector>

namespace longhaul::cluster {
namespace {

SuccessionView lost_supervisor() {
  SuccessionView view;
  view.connected = false;
  view.unheard = 13.0;
  view.lease = LeaseState::Expired;
  view.served = view.holder = 4;
  return view;
}

TEST(Succession, ASupervisorThatIsHeardIsLeftAlone) {
  SuccessionView view = lost_supervisor();
  view.connected = true;
  view.unheard = 11.0;
  view.lease_since = 100.0;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Wait);
}

TEST(Succession, SuccessorsTakeTheirTurnsAndTheFirstOneWaitsForNobody) {
  SuccessionView view = lost_supervisor();
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::StandIn);
  view.turn = 2;
  view.lease_since = 9.0;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Wait);
  view.lease_since = 10.0;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::StandIn);
  view.turn = 4000;
  view.lease_since = 35.0;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::StandIn);
}

TEST(Succession, AFrozenSupervisorIsEndedWhereItIsAndReplacedLaterElsewhere) {
  SuccessionView view = lost_supervisor();
  view.connected = true;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Wait);
  view.lease_since = 10.0;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::StandIn);
  view.holder_here = true;
  view.lease_since = 0.0;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::EndFrozen);
}

TEST(Succession, AnAgentThatWasGivenUpComesBackAndOneThatNobodyNeedsLeaves) {
  SuccessionView view = lost_supervisor();
  view.lease = LeaseState::Held;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Reconnect);
  view.holder = 5;  // another supervisor: it starts an agent of its own here
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Wait);
  view.lease = LeaseState::Released;
  view.asked_to_end = true;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Leave);
}

TEST(Succession, AnAgentThatWasCutOffFromASupervisorThatEndedLooksForTheScript) {
  SuccessionView view = lost_supervisor();
  view.lease = LeaseState::Released;
  view.lease_since = 59.0;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Wait);
  view.lease_since = 60.0;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::RequeueDeserted);
  view.turn = 8;
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Leave) << "others ask";
  view.turn = 0;
  view.connected = true;  // the supervisor will tell this agent to end
  EXPECT_EQ(decide_succession({}, view), SuccessionAct::Wait);
}

TEST(Succession, TheLastOneOutRequeuesTheJob) {
  SuccessionView cancelled = lost_supervisor();
  cancelled.asked_to_end = true;
  cancelled.unheard = 3.0;
  cancelled.lease = LeaseState::Held;
  EXPECT_EQ(decide_succession({}, cancelled), SuccessionAct::Requeue);
  cancelled.holder = 5;
  EXPECT_EQ(decide_succession({}, cancelled), SuccessionAct::Leave);
  SuccessionView blind = lost_supervisor();
  blind.lease = LeaseState::Unknown;
  blind.lease_since = 299.0;
  EXPECT_EQ(decide_succession({}, blind), SuccessionAct::Wait);
  blind.lease_since = 300.0;
  EXPECT_EQ(decide_succession({}, blind), SuccessionAct::Requeue);
}

// The test visits all states of a small world. The world has a supervisor, three agents
// on other machines, and one lease. In each tick any message may be lost and one process
// may stand still. At most two processes die.

constexpr int kAgents = 3;
constexpr int kLease = 2;  // ticks
constexpr int kCap = 4;    // more than any patience here
constexpr int kBound = 6;

SuccessionRules small_rules() {
  SuccessionRules rules;
  rules.silence = 2;
  rules.frozen = 1;
  rules.turn = 1;
  rules.script = 1;
  return rules;
}

struct Process {
  bool dead = false;
  bool slept = false;
  int number = 0;  // number of the lease that the process believes to hold; 0: none
  // The members below matter for a process that is an agent.
  bool connected = true;
  int unheard = 0;
  bool expired = false;
  int since = 0;
  int served = 1;
  int wants = 0;  // the number that it will replace in its next tick; 0: none
};

struct World {
  std::array<Process, kAgents + 1> processes;  // the last one began as the supervisor
  int lease = 1;
  int age = 0;
  int newest_act = 1;
  int deaths = 0;

  World() { processes[kAgents].number = 1; }

  /// Identifies a state. Numbers of leases grow without end, but it only matters which
  /// one is the newest.
  std::pair<uint64_t, uint64_t> key() const {
    uint64_t bits = 0;
    const auto add = [&](int value, int width) {
      bits = bits << width | static_cast<uint64_t>(value);
    };
    const auto age_of = [&](int number) {
      return number == 0 ? 0 : number == lease ? 1 : 2;
    };
    for (const Process& one : processes) {
      add(one.dead, 1), add(one.slept, 1), add(one.connected, 1), add(one.expired, 1);
      add(one.unheard, 3), add(one.since, 3);
      add(age_of(one.number), 2), add(age_of(one.wants), 2), add(one.served == lease, 1);
    }
    return {bits, static_cast<uint64_t>(age * 64 + deaths * 16 +
                                        std::min(lease - newest_act, 3))};
  }
};

struct Choice {
  int asleep = -1;
  int dies = -1;
  int deaf = 0;  // bits: agents that get no message in this tick
};

/// Runs one process's part of a tick. If the process acts as the supervisor, adds the
/// number of its lease to `acted`.
void act(World& world, int index, std::vector<int>& acted, int deaf) {
  Process& self = world.processes[static_cast<size_t>(index)];
  if (self.number != 0) {
    if (world.lease != self.number) {  // the lease is another process's: it must not act
      self.number = 0;
      self.connected = false;
      self.unheard = self.since = 0;
      if (index == kAgents) self.dead = true;  // the first supervisor was never an agent
      return;
    }
    acted.push_back(self.number);
    world.age = 0;
    for (int other = 0; other < kAgents; ++other) {
      Process& agent = world.processes[static_cast<size_t>(other)];
      if (other == index || agent.dead || agent.number != 0 || (deaf >> other & 1)) {
        continue;
      }
      agent.connected = true;
      agent.unheard = 0;
      agent.served = self.number;
    }
    return;
  }
  if (index == kAgents) return;
  if (self.wants != 0) {
    if (world.lease == self.wants && world.age >= kLease) {
      self.number = ++world.lease;
      world.age = 0;
    }
    self.wants = 0;
    return;
  }
  const bool expired = world.age >= kLease;
  if (expired != self.expired) self.since = 0;
  self.expired = expired;
  SuccessionView view;
  view.connected = self.connected;
  view.unheard = self.unheard;
  view.lease = expired ? LeaseState::Expired : LeaseState::Held;
  view.lease_since = self.since;
  view.served = self.served;
  view.holder = world.lease;
  view.turn = index;
  if (decide_succession(small_rules(), view) == SuccessionAct::StandIn) {
    self.wants = world.lease;
    self.connected = false;
  }
  self.unheard = std::min(self.unheard + 1, kCap);
  self.since = std::min(self.since + 1, kCap);
}

/// Runs a tick. Returns the numbers of the leases under which processes acted.
std::vector<int> tick(World& world, const Choice& choice) {
  std::vector<int> acted;
  world.age = std::min(world.age + 1, kCap);
  if (choice.dies >= 0) {
    Process& dying = world.processes[static_cast<size_t>(choice.dies)];
    world.deaths += dying.dead ? 0 : 1;
    for (Process& one : world.processes) {
      if (dying.number != 0 && one.served == dying.number) one.connected = false;
    }
    dying = Process();
    dying.dead = true;
    dying.served = world.lease;
  }
  for (int index = kAgents; index >= 0; --index) {
    Process& self = world.processes[static_cast<size_t>(index)];
    if (self.dead) continue;
    const bool asleep = index == choice.asleep;
    // The process itself has paused, so its clocks begin anew.
    if (self.slept && !asleep) self.unheard = self.since = 0;
    self.slept = asleep;
    if (!asleep) act(world, index, acted, choice.deaf);
  }
  return acted;
}

std::vector<Choice> choices(const World& world) {
  std::vector<Choice> all;
  for (int asleep = -1; asleep <= kAgents; ++asleep) {
    for (const int deaf : {0, 1, 6, 7}) all.push_back({asleep, -1, deaf});
  }
  for (int dies = 0; dies <= kAgents && world.deaths < 2; ++dies) {
    all.push_back({-1, dies, 0});
  }
  return all;
}

TEST(Succession, InEveryStateOfASmallWorldOneAtMostActsAndSoonSomebodyDoes) {
  std::deque<World> open = {World()};
  std::set<std::pair<uint64_t, uint64_t>> seen = {World().key()};
  int longest = 0;
  while (!open.empty()) {
    const World world = open.front();
    open.pop_front();
    World calm = world;
    int waited = 0;
    while (waited <= kBound && tick(calm, {}).empty()) ++waited;
    longest = std::max(longest, waited);
    ASSERT_LE(waited, kBound) << "nobody acts though nothing happens any more";
    for (const Choice& choice : choices(world)) {
      World next = world;
      const std::vector<int> acted = tick(next, choice);
      ASSERT_LE(acted.size(), 1U) << "two supervisors act in one tick";
      for (const int number : acted) {
        ASSERT_GE(number, next.newest_act) << "one acts after its successor has";
        next.newest_act = number;
      }
      if (seen.insert(next.key()).second) open.push_back(next);
    }
  }
  EXPECT_GT(seen.size(), 10'000U);
  RecordProperty("states", static_cast<int>(seen.size()));
  RecordProperty("longest_wait", longest);
  printf("%zu states, at most %d ticks without a supervisor\n", seen.size(), longest);
}

}  // namespace
}  // namespace longhaul::cluster
