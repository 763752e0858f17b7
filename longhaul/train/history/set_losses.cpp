#include "longhaul/train/history/set_losses.h"

#include <fmt/format.h>

#include <limits>

namespace longhaul::train {
namespace {

/// Reads a loss; null is NaN, because JSON has no number for values that are not finite.
double number_or_nan(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

}  // namespace

std::string RisenLoss::describe() const {
  return fmt::format(
      "validation {} loss {:.5f} at step {} is {:.5f} above its {:.5f} at step {}, more "
      "than stop_above = {:g} of data.validation",
      name, loss.last, loss.last_step, loss.last - loss.first, loss.first,
      loss.first_step, allowed);
}

void SetLosses::note(const std::string& name, int64_t step, double loss) {
  SetLoss& set = sets_.try_emplace(name, SetLoss{step, loss, step, loss}).first->second;
  set.last_step = step;
  set.last = loss;
}

void SetLosses::take_begins(const SetLosses& other) {
  for (const auto& [name, set] : other.sets_) {
    sets_.try_emplace(name,
                      SetLoss{set.first_step, set.first, set.first_step, set.first});
  }
}

std::optional<RisenLoss> SetLosses::risen(
    const std::vector<ValidationSource>& sets) const {
  for (const ValidationSource& set : sets) {
    const auto found = sets_.find(set.name);
    if (!set.stop_above || found == sets_.end()) continue;
    const SetLoss& loss = found->second;
    // The comparison is false for NaN, so that NaN counts as beyond every bound.
    if (loss.last - loss.first <= *set.stop_above) continue;
    return RisenLoss{set.name, loss, *set.stop_above};
  }
  return std::nullopt;
}

Json SetLosses::to_json() const {
  Json json = Json::object();
  for (const auto& [name, set] : sets_) {
    json[name] = {{"first_step", set.first_step},
                  {"first", set.first},
                  {"last_step", set.last_step},
                  {"last", set.last}};
  }
  return json;
}

SetLosses SetLosses::from_json(const Json& json) {
  SetLosses losses;
  for (const auto& [name, set] : json.get_ref<const Json::object_t&>()) {
    losses.sets_[name] = {
        set.at("first_step").get<int64_t>(), number_or_nan(set.at("first")),
        set.at("last_step").get<int64_t>(), number_or_nan(set.at("last"))};
  }
  return losses;
}

}  // namespace longhaul::train
