#include "longhaul/families/gpt_neox/rotation.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace longhaul::families {
namespace {

/// The objects that may hold the rotation. transformers reads only the first that is not
/// empty.
constexpr const char* kObjects[] = {"rope_scaling", "rope_parameters"};

/// A number of the rotation: its name inside of the objects, its older name outside of
/// the objects, and the value that the class in transformers takes if both are absent. A
/// number outside of the objects under its inner name is not read there.
struct RotationNumber {
  const char* inside;
  const char* outside;
  double absent;
};

struct Place {
  std::string name;
  double value = 0.0;
};

/// Returns every place where the number stands, the place that transformers reads first.
/// Sets `taken` if transformers reads one of the places.
std::vector<Place> places_of(const ConfigFields& fields, const RotationNumber& number,
                             bool& taken) {
  std::vector<Place> places;
  const auto add = [&](const ConfigFields& from, const char* key,
                       const std::string& name) {
    if (const auto value = from.number(key)) places.push_back({name, *value});
    return from.find(key) != nullptr;
  };
  std::vector<Place> passed_over;
  bool first = true;
  for (const char* object : kObjects) {
    const OrderedJson* json = fields.find(object);
    if (json == nullptr || !json->is_object() || json->empty()) continue;
    const std::string prefix = fmt::format("{}.", object);
    if (json->contains(number.inside) && (*json)[number.inside].is_null()) {
      fields.fail(prefix + number.inside,
                  "is null, which transformers refuses; give it a number");
    }
    const bool there = add(ConfigFields(*json, fields.file(), prefix), number.inside,
                           prefix + number.inside);
    if (there && !first) {
      passed_over.push_back(places.back());
      places.pop_back();
    }
    first = false;
  }
  add(fields, number.outside, number.outside);
  taken = !places.empty();
  places.insert(places.end(), passed_over.begin(), passed_over.end());
  add(fields, number.inside, number.inside);
  return places;
}

/// Returns the number that transformers takes. Throws InputError if another place
/// disagrees, or if the number stands nowhere.
double one_number(const ConfigFields& fields, const RotationNumber& number) {
  bool taken = false;
  const std::vector<Place> places = places_of(fields, number, taken);
  if (!taken && fields.object().contains(number.outside)) {
    fields.fail(number.outside, "is null, which transformers refuses; give it a number");
  }
  if (places.empty()) {
    fields.fail(number.outside,
                "is missing, and so is rope_parameters.{}; add one of them",
                number.inside);
  }
  const double value = taken ? places.front().value : number.absent;
  for (const Place& place : places) {
    if (place.value == value) continue;
    if (taken) {
      fields.fail(place.name,
                  "= {} disagrees with {} = {}, the value that transformers takes; keep "
                  "one of them",
                  place.value, places.front().name, value);
    }
    const bool inside = place.name != number.inside;
    fields.fail(place.name,
                "= {} has no effect in transformers{}, which takes {} where {} is "
                "absent; set {} instead",
                place.value, inside ? " beside rope_scaling" : "", value, number.outside,
                number.outside);
  }
  return value;
}

}  // namespace

NeoxRotation read_neox_rotation(const ConfigFields& fields, int64_t head_dim) {
  const double theta = one_number(fields, {"rope_theta", "rotary_emb_base", 10000.0});
  const double part = one_number(fields, {"partial_rotary_factor", "rotary_pct", 0.25});
  // The object `usual` has the form of config.json for families that rotate whole heads,
  // which read_rope expects.
  OrderedJson usual = {{"rope_theta", theta}};
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (fields.object().contains(kOriginal)) {
    usual[kOriginal] = fields.object()[kOriginal];
  }
  for (const char* object : kObjects) {
    const OrderedJson* json = fields.find(object);
    if (json == nullptr) continue;
    usual[object] = *json;
    if (!json->is_object()) continue;
    usual[object].erase("partial_rotary_factor");
    usual[object].erase("rope_theta");
  }
  NeoxRotation rotation;
  rotation.rope = read_rope(ConfigFields(usual, fields.file()));
  rotation.features =
      rotated_features(fields, "rotary_pct (partial_rotary_factor)", part, head_dim);
  return rotation;
}

}  // namespace longhaul::families
