#include "longhaul/families/gpt_neox/rotation.h"

#include <fmt/format.h>

namespace longhaul::families {
namespace {

/// The objects that may hold it, in the order in which transformers looks.
constexpr const char* kObjects[] = {"rope_scaling", "rope_parameters"};

/// A number that stands in one of several places; InputError where they disagree, or
/// where there is none.
double one_number(const ConfigFields& fields, const char* inside,
                  std::initializer_list<const char*> outside) {
  std::optional<double> found;
  std::string where;
  const auto take = [&](const ConfigFields& from, const char* key,
                        const std::string& name) {
    const auto value = from.number(key);
    if (!value) return;
    if (found && *found != *value) {
      from.fail(key, fmt::format("= {} disagrees with {} = {}; keep one of them", *value,
                                 where, *found));
    }
    found = value;
    where = name;
  };
  for (const char* object : kObjects) {
    const OrderedJson* json = fields.find(object);
    if (json == nullptr || !json->is_object()) continue;
    const std::string prefix = fmt::format("{}.", object);
    take(ConfigFields(*json, fields.file(), prefix), inside, prefix + inside);
  }
  for (const char* key : outside) take(fields, key, key);
  if (!found) {
    fields.fail(*outside.begin(), fmt::format("is missing, and so is rope_parameters.{}; "
                                              "add one of them",
                                              inside));
  }
  return *found;
}

}  // namespace

NeoxRotation read_neox_rotation(const ConfigFields& fields, int64_t head_dim) {
  const double theta =
      one_number(fields, "rope_theta", {"rotary_emb_base", "rope_theta"});
  const double part = one_number(fields, "partial_rotary_factor",
                                 {"rotary_pct", "partial_rotary_factor"});
  // As other families have it, whose heads are rotated whole.
  OrderedJson usual = {{"rope_theta", theta}};
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
  if (part <= 0.0 || part > 1.0) {
    fields.fail("rotary_pct", fmt::format("(partial_rotary_factor) = {} must be above 0 "
                                          "and at most 1",
                                          part));
  }
  // Rounded down, as transformers does.
  rotation.features = static_cast<int64_t>(static_cast<double>(head_dim) * part);
  if (rotation.features < 2 || rotation.features % 2 != 0) {
    fields.fail("rotary_pct",
                fmt::format("(partial_rotary_factor) = {} of heads of {} gives {} "
                            "features, which must be an even number of them",
                            part, head_dim, rotation.features));
  }
  return rotation;
}

}  // namespace longhaul::families
