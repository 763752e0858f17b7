#include "longhaul/imports/numbered_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "longhaul/base/error.h"

namespace longhaul::imports {
namespace {

using Ref = PickleTree::Ref;
using Kind = PickleKind;
using Shape = std::vector<int64_t>;

class RankReader {
 public:
  RankReader(ForeignFiles& files, std::vector<OptimizerShard> shards,
             const NamedTensors& parameters)
      : files_(files), parameters_(parameters) {
    for (OptimizerShard& shard : shards) {
      shards_.push_back(std::move(shard.state));
      roots_.push_back(shard.root);
    }
    what_ = files.path(shards_.front().file()).string();
    sharded_ = shards_.size() > 1 ||
               shards_.front().dict(roots_.front(), "base_state").has_value();
  }

  NamedOptimizer run() {
    for (size_t dp = 0; dp < shards_.size(); ++dp) {
      entries_.push_back(numbered(shards_[dp], state_of(dp)));
    }
    const std::vector<const std::pair<std::string, Mosaic>*> order = parameter_order();
    NamedOptimizer rank;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto number = static_cast<int64_t>(i);
      const std::string& name = order[i]->first;
      rank.exp_avg.emplace_back(name, merge(entries_, number, "exp_avg", *order[i]));
      rank.exp_avg_sq.emplace_back(name,
                                   merge(entries_, number, "exp_avg_sq", *order[i]));
      count_updates(number, rank.updates);
    }
    read_masters(order, rank);
    return rank;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> problem, Args&&... args) const {
    fail_input(
        "import",
        "{}: {}; import the weights alone (without --format checkpoint) to start a "
        "new optimizer",
        what_, fmt::format(problem, std::forward<Args>(args)...));
  }

  Ref state_of(size_t dp) const {
    const ForeignState& shard = shards_[dp];
    for (const char* key : {"base_state", "state"}) {
      const auto state = shard.dict(roots_[dp], key);
      if (state && !shard.tree().items(*state).empty()) return *state;
    }
    fail("no optimizer state (neither base_state nor state)");
  }

  // Returns the values of a dict whose keys are the numbers of parameters.
  std::map<int64_t, Ref> numbered(const ForeignState& shard, Ref dict) const {
    std::map<int64_t, Ref> result;
    for (const auto& [key, value] : shard.tree().entries(dict)) {
      const auto number = shard.tree().as_int(key);
      if (!number) fail("an entry that is not the number of a parameter");
      result[*number] = value;
    }
    return result;
  }

  // ---- numbers to names ----

  using Order = std::vector<const std::pair<std::string, Mosaic>*>;

  Order parameter_order() const {
    Order all;
    for (const auto& entry : parameters_) all.push_back(&entry);
    const std::vector<size_t> groups = group_sizes(all.size());
    std::vector<Order> candidates;
    if (std::count_if(groups.begin(), groups.end(), [](size_t n) { return n > 0; }) <=
        1) {
      candidates.push_back(all);
    } else if (groups.size() == 2) {
      for (const std::vector<std::string_view>& undecayed :
           {std::vector<std::string_view>{"bias", "norm"},
            std::vector<std::string_view>{"bias", "LayerNorm"}}) {
        for (const bool decayed_first : {true, false}) {
          candidates.push_back(split_order(all, undecayed, decayed_first, groups[0]));
        }
      }
    }
    for (const Order& candidate : candidates) {
      if (candidate.size() == all.size() && shapes_fit(candidate)) return candidate;
    }
    fail(
        "{} optimizer entries in {} groups do not fit the {} parameters of the model's "
        "file",
        entries_.front().size(), groups.size(), all.size());
  }

  static Order split_order(const Order& all,
                           const std::vector<std::string_view>& undecayed,
                           bool decayed_first, size_t first_group) {
    Order groups[2];
    for (const auto* entry : all) {
      const bool plain =
          std::any_of(undecayed.begin(), undecayed.end(), [&](std::string_view part) {
            return entry->first.find(part) != std::string::npos;
          });
      groups[plain == decayed_first ? 1 : 0].push_back(entry);
    }
    if (groups[0].size() != first_group) return {};
    Order order = groups[0];
    order.insert(order.end(), groups[1].begin(), groups[1].end());
    return order;
  }

  std::vector<size_t> group_sizes(size_t parameters) const {
    const ForeignState& shard = shards_.front();
    const PickleTree& tree = shard.tree();
    const auto groups = tree.find(roots_.front(), "param_groups");
    if (!groups || !tree.is(*groups, Kind::List)) return {parameters};
    std::vector<size_t> sizes;
    for (const Ref group : tree.items(*groups)) {
      const auto list = tree.find(group, "params");
      if (!list || !tree.is(*list, Kind::List)) fail("a parameter group without params");
      sizes.push_back(tree.items(*list).size());
    }
    return sizes;
  }

  bool shapes_fit(const Order& order) const {
    if (entries_.front().size() != order.size()) return false;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto number = static_cast<int64_t>(i);
      if (!entries_.front().contains(number)) return false;
      const Shape wanted = order[i]->second.shape();
      if (const auto stated = stated_shape(number); stated && *stated != wanted) {
        return false;
      }
      const auto part =
          shards_.front().tree().find(entries_.front().at(number), "exp_avg");
      const auto stored = part ? shards_.front().tensor(*part) : std::nullopt;
      if (!stored || stored->shape != shard_shape(wanted)) return false;
    }
    return true;
  }

  // Returns the shape of a shard. ZeRO pads dim 0 to a multiple of the shards and cuts
  // evenly.
  Shape shard_shape(Shape shape) const {
    const auto count = static_cast<int64_t>(shards_.size());
    if (sharded_ && !shape.empty()) shape[0] = (shape[0] + count - 1) / count;
    return shape;
  }

  std::optional<Shape> stated_shape(int64_t number) const {
    const ForeignState& shard = shards_.front();
    const auto info = shard.dict(roots_.front(), "shape_info");
    if (!info) return std::nullopt;
    for (const auto& [key, value] : shard.tree().entries(*info)) {
      if (shard.tree().as_int(key) == number) return shard.tree().as_ints(value);
    }
    return std::nullopt;
  }

  // ---- tensors ----

  // Returns a parameter's tensor from what each shard holds for the parameter's number:
  // the part itself, or, where `kind` is given, a dict with the part under that key.
  Mosaic merge(const std::vector<std::map<int64_t, Ref>>& shards, int64_t number,
               const char* kind, const std::pair<std::string, Mosaic>& parameter) const {
    const std::string& name = parameter.first;
    const Shape shape = parameter.second.shape();
    std::vector<Mosaic> parts;
    for (size_t dp = 0; dp < shards.size(); ++dp) {
      const auto entry = shards[dp].find(number);
      std::optional<Ref> value;
      if (entry != shards[dp].end()) {
        value = kind ? shards_[dp].tree().find(entry->second, kind) : entry->second;
      }
      const auto stored = value ? shards_[dp].tensor(*value) : std::nullopt;
      if (!stored) fail("shard {} has no {} of {}", dp, kind ? kind : "master", name);
      parts.emplace_back(*stored);
    }
    const Mosaic padded =
        parts.size() == 1 ? parts.front() : Mosaic::concatenate(parts, 0, name);
    if (padded.shape().size() != shape.size() || shape.empty() ||
        padded.shape()[0] < shape[0]) {
      fail("{}: its shards have shape {} together, but the parameter has {}", name,
           format::describe_shape(padded.shape()), format::describe_shape(shape));
    }
    return padded.shape() == shape ? padded : padded.narrow(0, 0, shape[0]);
  }

  void count_updates(int64_t number, std::optional<int64_t>& updates) const {
    const auto value = shards_.front().tree().find(entries_.front().at(number), "step");
    const auto step = value ? shards_.front().number(files_, *value) : std::nullopt;
    if (!step || *step < 0 || *step > 1e15 || *step != std::floor(*step)) {
      fail("parameter {} has no step", number);
    }
    const auto count = static_cast<int64_t>(*step);
    if (updates && *updates != count) {
      fail("some parameters have {} steps, others have {}", *updates, count);
    }
    updates = count;
  }

  void read_masters(const Order& order, NamedOptimizer& rank) const {
    std::vector<std::map<int64_t, Ref>> all;
    for (size_t dp = 0; dp < shards_.size(); ++dp) {
      const auto dict = shards_[dp].dict(roots_[dp], "sharded_master_weights");
      if (!dict) return;
      all.push_back(numbered(shards_[dp], *dict));
    }
    for (size_t i = 0; i < order.size(); ++i) {
      rank.masters.emplace_back(order[i]->first,
                                merge(all, static_cast<int64_t>(i), nullptr, *order[i]));
    }
  }

  ForeignFiles& files_;
  const NamedTensors& parameters_;
  std::vector<ForeignState> shards_;  // by dp rank
  std::vector<Ref> roots_;
  std::vector<std::map<int64_t, Ref>> entries_;
  std::string what_;
  bool sharded_ = false;
};

}  // namespace

NamedOptimizer read_numbered_optimizer(ForeignFiles& files,
                                       std::vector<OptimizerShard> shards,
                                       const NamedTensors& parameters) {
  return RankReader(files, std::move(shards), parameters).run();
}

}  // namespace longhaul::imports
