#include "longhaul/layout/unit_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace longhaul::layout {
namespace {

using Kind = PipelineAction::Kind;

/// Lists the uses and gradients of units in the order of actions. What is gathered and
/// released for a use is left empty.
class Walk {
 public:
  Walk(const PipelinePlan& plan, const RankUnits& units) : plan_(plan), units_(units) {}

  void add(const PipelineAction& action) {
    const ChunkUnits& chunk = units_.chunks.at(static_cast<size_t>(action.chunk));
    last_ = action.micro_batch + 1 == plan_.micro_batches;
    if (action.kind == Kind::Forward) forward(chunk);
    if (action.kind == Kind::Backward) backward(chunk);
    if (action.kind == Kind::WeightGradients && units_.delayed) layers_reduced(chunk);
  }

  UnitPlan take() { return std::move(out_); }

 private:
  void forward(const ChunkUnits& chunk) {
    if (chunk.embedding >= 0) use(Kind::Forward, chunk.embedding);
    for (int64_t l = chunk.spec.first_layer; l < chunk.spec.end_layer; ++l) {
      use(Kind::Forward, chunk.block(l));
    }
    if (chunk.head < 0) return;
    if (chunk.head_layers >= 0) use(Kind::Forward, chunk.head_layers);
    use(Kind::Forward, chunk.head);
    // The gradients of the head's matrix are formed in the forward. The gradients of a
    // tied embedding, and of a unit that has layers as well, are complete only in the
    // backward.
    const bool grows = chunk.head == chunk.embedding || chunk.head == chunk.head_layers;
    if (plan_.training && !grows) formed(chunk.head);
  }

  void backward(const ChunkUnits& chunk) {
    if (chunk.head_layers >= 0) use(Kind::Backward, chunk.head_layers);
    for (int64_t l = chunk.spec.end_layer; l-- > chunk.spec.first_layer;) {
      use(Kind::Backward, chunk.block(l));
    }
    if (!units_.delayed) layers_reduced(chunk);
    // The embedding's backward does not use its weights.
    if (chunk.embedding >= 0) formed(chunk.embedding);
  }

  void layers_reduced(const ChunkUnits& chunk) {
    if (chunk.head_layers >= 0) formed(chunk.head_layers);
    for (int64_t l = chunk.spec.end_layer; l-- > chunk.spec.first_layer;) {
      formed(chunk.block(l));
    }
  }

  void use(Kind kind, int unit) { out_.weights.push_back({kind, unit, {}, {}}); }
  void formed(int unit) {
    out_.gradients.push_back({unit, last_ || units_.reduce_each, last_});
  }

  const PipelinePlan& plan_;
  const RankUnits& units_;
  bool last_ = false;
  UnitPlan out_;
};

UnitPlan uses_of(const PipelinePlan& plan, int stage, const RankUnits& units) {
  Walk walk(plan, units);
  for (const PipelineAction& action : plan.of(stage)) walk.add(action);
  return walk.take();
}

/// Decides which gathered weights are held between uses.
class Holder {
 public:
  Holder(std::vector<WeightUse>& uses, const RankUnits& units) : units_(units) {
    for (WeightUse& use : uses) {
      if (bytes_of(use.unit) > 0) uses_.push_back(&use);
    }
    next_.resize(uses_.size());
    std::map<int, size_t> later;
    for (size_t i = uses_.size(); i-- > 0;) {
      const auto found = later.find(uses_[i]->unit);
      next_[i] = found == later.end() ? kNever : found->second;
      later[uses_[i]->unit] = i;
    }
  }

  void run() {
    for (size_t i = 0; i < uses_.size(); ++i) {
      const int unit = uses_[i]->unit;
      hold(i, i, unit);
      if (i + 1 < uses_.size()) hold(i, i + 1, uses_[i + 1]->unit);
      held_[unit] = next_[i];
      if (next_[i] == kNever) let_go(i, unit);
    }
  }

 private:
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();

  int64_t bytes_of(int unit) const {
    return units_.gathered_bytes.at(static_cast<size_t>(unit));
  }

  /// Gathers the unit `wanted` before use number `i`; the unit is needed for use number
  /// `use`. Does nothing if the unit is held already or no buffer is free.
  void hold(size_t i, size_t use, int wanted) {
    if (held_.contains(wanted)) return;
    const int64_t size = bytes_of(wanted);
    if (taken_[size] == units_.slots.at(size) && !make_room(i, size)) return;
    uses_[i]->gather.push_back(wanted);
    held_[wanted] = use;
    ++taken_[size];
  }

  /// Frees a buffer of this size before use number `i`, by a release after use `i - 1`.
  /// Keeps the unit that use `i` needs. Returns false if nothing can be freed.
  bool make_room(size_t i, int64_t size) {
    int farthest = -1;
    for (const auto& [unit, next] : held_) {
      if (bytes_of(unit) != size || unit == uses_[i]->unit) continue;
      if (farthest < 0 || next > held_.at(farthest)) farthest = unit;
    }
    if (farthest < 0) return false;
    let_go(i - 1, farthest);
    return true;
  }

  void let_go(size_t after, int unit) {
    uses_[after]->release.push_back(unit);
    held_.erase(unit);
    --taken_[bytes_of(unit)];
  }

  const RankUnits& units_;
  std::vector<WeightUse*> uses_;  ///< uses of weights that are gathered
  std::vector<size_t> next_;      ///< for each use the next use of its unit
  std::map<int, size_t> held_;    ///< held units, each with its next use
  std::map<int64_t, int> taken_;  ///< buffers in use, by size
};

}  // namespace

UnitPlan plan_units(const PipelinePlan& plan, int stage, const RankUnits& units) {
  UnitPlan out = uses_of(plan, stage, units);
  Holder(out.weights, units).run();
  return out;
}

std::map<int64_t, int> gather_slots(const PipelinePlan& training, int stage,
                                    const RankUnits& units, int64_t budget) {
  const auto bytes_of = [&](const WeightUse& use) {
    return units.gathered_bytes.at(static_cast<size_t>(use.unit));
  };
  std::map<int64_t, int> slots;
  const std::vector<WeightUse> uses = uses_of(training, stage, units).weights;
  const WeightUse* before = nullptr;
  for (const WeightUse& use : uses) {
    if (bytes_of(use) == 0) continue;
    const bool follows = before != nullptr && before->unit != use.unit &&
                         bytes_of(*before) == bytes_of(use);
    int& slot = slots[bytes_of(use)];
    slot = std::max(slot, follows ? 2 : 1);
    before = &use;
  }
  std::map<int64_t, int> numbers;  // number of units of each size
  for (const int64_t bytes : units.gathered_bytes) {
    if (bytes > 0) ++numbers[bytes];
  }
  std::vector<std::pair<int, int64_t>> by_number;
  for (const auto& [bytes, number] : numbers) by_number.emplace_back(number, bytes);
  std::ranges::sort(by_number, std::greater<>());
  int64_t left = std::max<int64_t>(budget - slot_bytes(slots), 0);
  for (const auto& [number, bytes] : by_number) {
    const int64_t more = std::min<int64_t>(left / bytes, number - slots[bytes]);
    slots[bytes] += static_cast<int>(more);
    left -= more * bytes;
  }
  return slots;
}

int64_t slot_bytes(const std::map<int64_t, int>& slots) {
  int64_t total = 0;
  for (const auto& [bytes, number] : slots) total += bytes * number;
  return total;
}

int64_t gathered_peak(const UnitPlan& plan, const RankUnits& units) {
  std::map<int64_t, std::pair<int64_t, int64_t>> of_size;  // held now, most held
  for (const WeightUse& use : plan.weights) {
    for (const int unit : use.gather) {
      auto& [now, most] = of_size[units.gathered_bytes.at(static_cast<size_t>(unit))];
      most = std::max(most, ++now);
    }
    for (const int unit : use.release) {
      --of_size.at(units.gathered_bytes.at(static_cast<size_t>(unit))).first;
    }
  }
  int64_t total = 0;
  for (const auto& [bytes, counts] : of_size) total += bytes * counts.second;
  return total;
}

std::vector<int64_t> gathered_bytes(std::span<const BucketShape> buckets,
                                    int64_t element_bytes) {
  std::vector<int64_t> bytes;
  for (const BucketShape& bucket : buckets) {
    if (bucket.unit == kResidentUnit) continue;
    const auto unit = static_cast<size_t>(bucket.unit);
    if (unit >= bytes.size()) bytes.resize(unit + 1);
    if (!bucket.weights_stay) bytes[unit] += bucket.num_elements * element_bytes;
  }
  return bytes;
}

}  // namespace longhaul::layout
