#include "longhaul/run/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

namespace longhaul::run {
namespace {

struct Axis {
  const char* name;
  Axes bit;
  int Place::* index;
};
constexpr std::array<Axis, 4> kAxes = {{{"pp", kPpAxis, &Place::pp},
                                        {"dp", kDpAxis, &Place::dp},
                                        {"cp", kCpAxis, &Place::cp},
                                        {"tp", kTpAxis, &Place::tp}}};

struct Group {
  const char* name;
  Axes axes;
};
/// The kinds of groups in the order of GroupKind.
constexpr std::array<Group, kGroupKinds> kGroups = {{{"pp", kPpAxis},
                                                     {"dp", kDpAxis},
                                                     {"cp", kCpAxis},
                                                     {"tp", kTpAxis},
                                                     {"data", kDataAxes},
                                                     {"shard", kDataAxes},
                                                     {"replicas", kDataAxes},
                                                     {"tied", kPpAxis},
                                                     {"key replicas", kTpAxis},
                                                     {"ep", kDataAxes},
                                                     {"expert data", kDataAxes},
                                                     {"expert shard", kDataAxes},
                                                     {"expert replicas", kDataAxes}}};

const Group& group(GroupKind kind) { return kGroups.at(static_cast<size_t>(kind)); }

}  // namespace

std::string to_string(const Place& place) {
  return fmt::format("pp {} dp {} cp {} tp {}", place.pp, place.dp, place.cp, place.tp);
}

std::optional<Place> parse_place(const std::string& text) {
  std::istringstream words(text);
  Place place;
  for (const Axis& axis : kAxes) {
    std::string name;
    words >> name >> place.*axis.index;
  }
  if (to_string(place) != text) return std::nullopt;
  return place;
}

Place without(Place place, Axes axes) {
  for (const Axis& axis : kAxes) {
    if ((axes & axis.bit) != 0) place.*axis.index = 0;
  }
  return place;
}

const char* group_name(GroupKind kind) { return group(kind).name; }

std::optional<GroupKind> group_of_name(std::string_view name) {
  const auto* const found = std::ranges::find(kGroups, name, &Group::name);
  if (found == kGroups.end()) return std::nullopt;
  return static_cast<GroupKind>(found - kGroups.begin());
}

Axes axes_of(GroupKind kind) { return group(kind).axes; }

}  // namespace longhaul::run
