#include "longhaul/checkpoint/memory/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/memory/memory_directory.h"
#include "longhaul/comm/agree.h"

namespace longhaul::checkpoint {
namespace {

/// A copy of a part on some machine.
struct Copy {
  size_t first_rank = 0;  ///< first rank of that machine
  std::string name;
  uint64_t data_bytes = 0;
};

/// What parts of the ranks must have in common to form one state.
struct StateKey {
  int attempt = 0;
  int64_t step = 0;
  int world = 0;
  std::string state_hash;
  auto operator<=>(const StateKey&) const = default;
};

/// By owner: the copies of the owner's part.
using Copies = std::vector<std::vector<Copy>>;

class Survey {
 public:
  Survey(const SurveyOptions& options, comm::Communicator& world,
         std::vector<std::string>& notes)
      : options_(options),
        world_(world),
        notes_(notes),
        rank_(static_cast<size_t>(world.rank())) {
    std::map<std::string, size_t> first;
    for (const std::string& machine : world.gather_strings(options.machine)) {
      first_rank_.push_back(first.emplace(machine, first_rank_.size()).first->second);
    }
  }

  std::optional<MemoryStep> find() {
    for (auto& [key, copies] : whole_states()) {
      drop_damaged(copies);
      if (missing(copies) == 0) return describe(key, copies);
      note(
          fmt::format("step {} in memory is not whole: every copy of {} of {} parts is "
                      "damaged",
                      key.step, missing(copies), key.world));
    }
    return std::nullopt;
  }

 private:
  bool speaks_for_machine() const { return first_rank_[rank_] == rank_; }
  void note(const std::string& line) {
    if (world_.rank() == 0) notes_.push_back(line);
  }
  static int64_t missing(const Copies& copies) {
    return std::ranges::count_if(copies, [](const auto& list) { return list.empty(); });
  }

  std::string list_here() const;
  std::vector<std::pair<StateKey, Copies>> whole_states();
  void drop_damaged(Copies& copies);
  MemoryStep describe(const StateKey& key, const Copies& copies);

  const SurveyOptions& options_;
  comm::Communicator& world_;
  std::vector<std::string>& notes_;
  std::vector<size_t> first_rank_;  ///< for each rank: the first rank of its machine
  size_t rank_;
};

/// Lists the parts of this machine, on its first rank, and the errors of parts that
/// cannot be read.
std::string Survey::list_here() const {
  Json parts = Json::array();
  Json bad = Json::array();
  if (!speaks_for_machine()) return "{}";
  for (const std::string& name : list_part_names(options_.dir)) {
    try {
      const PartReader part = PartReader::open(options_.dir / name);
      const PartLabel& label = part.label();
      const PartName named = *PartName::parse(name);
      // Skips parts of other runs, and parts that were given another part's name.
      if (label.run != options_.run || label.owner != named.owner ||
          label.attempt != named.attempt) {
        continue;
      }
      parts.push_back({name, label.attempt, label.step, label.owner, label.world,
                       hash_hex(part.state()), part.data().size()});
    } catch (const Error& error) {
      bad.push_back(error.what());
    }
  }
  return json_text(Json{{"parts", parts}, {"bad", bad}});
}

/// Returns the states of which every part exists somewhere, the newest first. Collective.
std::vector<std::pair<StateKey, Copies>> Survey::whole_states() {
  std::map<StateKey, Copies> states;
  const std::vector<std::string> lists = world_.gather_strings(list_here());
  for (size_t r = 0; r < lists.size(); ++r) {
    const Json list = Json::parse(lists[r]);
    if (list.empty()) continue;
    for (const Json& line : list.at("bad")) {
      note("part passed over: " + line.get<std::string>());
    }
    for (const Json& part : list.at("parts")) {
      const StateKey key{part[1].get<int>(), part[2].get<int64_t>(), part[4].get<int>(),
                         part[5].get<std::string>()};
      const auto owner = part[3].get<size_t>();
      Copies& copies = states[key];
      // The list grows to the highest owner that was listed. The number of ranks in a
      // file is not used, since it may be wrong.
      if (copies.size() <= owner) copies.resize(owner + 1);
      copies[owner].push_back({r, part[0].get<std::string>(), part[6].get<uint64_t>()});
    }
  }
  std::vector<std::pair<StateKey, Copies>> whole;
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    const auto& [key, copies] = *state;
    if (key.attempt < options_.min_attempt || key.step < options_.min_step) continue;
    const int64_t lacks =
        key.world - static_cast<int64_t>(copies.size()) + missing(copies);
    if (lacks == 0) {
      whole.emplace_back(key, copies);
    } else {
      note(fmt::format("step {} in memory is not whole: {} of {} parts are on no machine",
                       key.step, lacks, key.world));
    }
  }
  return whole;
}

/// Removes damaged copies from the lists; the ranks of a machine share the check of its
/// copies. Collective.
void Survey::drop_damaged(Copies& copies) {
  const size_t first = first_rank_[rank_];
  const auto ranks_here = std::ranges::count(first_rank_, first);
  const auto my_place =
      std::count(first_rank_.begin(),
                 first_rank_.begin() + static_cast<std::ptrdiff_t>(rank_), first);
  std::vector<std::string> damaged;
  int64_t number = 0;
  for (const std::vector<Copy>& list : copies) {
    for (const Copy& copy : list) {
      if (copy.first_rank != first || number++ % ranks_here != my_place) continue;
      try {
        PartReader::open(options_.dir / copy.name).verify(options_.threads);
      } catch (const Error& error) {
        damaged.push_back(copy.name);
        damaged.push_back(error.what());
      }
    }
  }
  const std::vector<std::string> all = world_.gather_strings(json_text(Json(damaged)));
  std::set<std::pair<size_t, std::string>> bad;
  for (size_t r = 0; r < all.size(); ++r) {
    const auto lines = Json::parse(all[r]).get<std::vector<std::string>>();
    for (size_t i = 0; i + 1 < lines.size(); i += 2) {
      bad.emplace(first_rank_[r], lines[i]);
      note(fmt::format("COPY DAMAGED (rank {}): {}", r, lines[i + 1]));
    }
  }
  for (std::vector<Copy>& list : copies) {
    std::erase_if(list, [&](const Copy& copy) {
      return bad.contains({copy.first_rank, copy.name});
    });
  }
}

/// Returns everything that all ranks need to read the state. Collective.
MemoryStep Survey::describe(const StateKey& key, const Copies& copies) {
  MemoryStep step;
  step.attempt = key.attempt;
  step.step = key.step;
  std::set<size_t> machines;
  Json texts = Json::object();
  for (size_t owner = 0; owner < copies.size(); ++owner) {
    MemoryStep::Part part;
    part.name = copies[owner].front().name;
    part.data_bytes = copies[owner].front().data_bytes;
    for (const Copy& copy : copies[owner]) {
      machines.insert(copy.first_rank);
      for (size_t r = 0; r < first_rank_.size(); ++r) {
        if (first_rank_[r] == copy.first_rank)
          part.readers.push_back(static_cast<int>(r));
      }
    }
    std::ranges::sort(part.readers);
    step.parts.push_back(std::move(part));
  }
  comm::on_all_ranks(world_, [&] {
    for (size_t owner = 0; owner < copies.size(); ++owner) {
      const Copy& first = copies[owner].front();
      if (first.first_rank != rank_) continue;
      const PartReader reader = PartReader::open(options_.dir / first.name);
      texts[std::to_string(owner)] = reader.text();
      if (owner == 0) texts["state"] = reader.state();
    }
  });
  step.machines = static_cast<int>(machines.size());
  for (const std::string& told : world_.gather_strings(json_text(texts))) {
    const Json json = Json::parse(told);
    for (const auto& [name, text] : json.items()) {
      std::string value = text.get<std::string>();
      if (name == "state") {
        step.state = std::move(value);
      } else {
        step.parts[std::stoul(name)].text = std::move(value);
      }
    }
  }
  return step;
}

}  // namespace

std::optional<MemoryStep> find_in_memory(const SurveyOptions& options,
                                         comm::Communicator& world,
                                         std::vector<std::string>& notes) {
  return Survey(options, world, notes).find();
}

}  // namespace longhaul::checkpoint
