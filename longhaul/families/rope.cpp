#include "longhaul/families/rope.h"

#include <charconv>
#include <cmath>

#include "longhaul/base/text.h"
#include "longhaul/families/family.h"

namespace longhaul::families {
namespace {

constexpr int64_t kMaxOriginal = int64_t{1} << 31;
constexpr const char* kOriginal = "original_max_position_embeddings";

/// Returns whether the file is from before the field rope_theta. transformers 4.33
/// (September 2023, with Code Llama) brought the field and has always written it since;
/// before, theta was always 10000. Llama 1 and Llama 2 were published by versions 4.27
/// to 4.31.
bool written_before_rope_theta(const ConfigFields& fields) {
  const auto version = fields.text("transformers_version");
  if (!version) return false;
  int major = 0;
  int minor = 0;
  const char* const end = version->data() + version->size();
  const auto first = std::from_chars(version->data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return false;
  if (std::from_chars(first.ptr + 1, end, minor).ec != std::errc()) return false;
  return major == 4 && minor < 33;
}

/// Returns the kind's name from rope_type, or from type, its older spelling.
std::string kind_name(const ConfigFields& rope, const std::string& fallback) {
  const auto type = rope.text("rope_type");
  const auto old_type = rope.text("type");
  if (type && old_type && *type != *old_type) {
    rope.fail("rope_type", "\"{}\" disagrees with type \"{}\"", *type, *old_type);
  }
  if (type) return *type;
  if (old_type) return *old_type;
  return fallback;
}

/// Refuses parameters that the kind does not use, since they would silently have no
/// effect.
void refuse_unknown(const ConfigFields& rope, RopeConfig::Kind kind) {
  using Kind = RopeConfig::Kind;
  constexpr const char* kCommon = "rope_type type rope_theta partial_rotary_factor";
  const char* const own =
      kind == Kind::Llama3   ? "factor low_freq_factor high_freq_factor "
                               "original_max_position_embeddings"
      : kind == Kind::Yarn   ? "factor beta_fast beta_slow truncate attention_factor "
                               "mscale mscale_all_dim original_max_position_embeddings"
      : kind == Kind::Linear ? "factor"
                             : "";
  for (const auto& [key, value] : rope.object().items()) {
    if (value.is_null() || has_word(kCommon, key) || has_word(own, key)) continue;
    rope.fail(key,
              "is not a parameter of this kind of RoPE; remove it or name the kind "
              "that uses it");
  }
  const auto partial = rope.number("partial_rotary_factor");
  if (partial && *partial != 1.0) {
    rope.fail("partial_rotary_factor", "= {} is not available yet; only 1.0 is",
              *partial);
  }
}

/// Fields of config.json that stand outside of rope_scaling and rope_parameters.
struct Outside {
  explicit Outside(const ConfigFields& fields)
      : original(fields.integer(kOriginal, 1, kMaxOriginal)),
        null_original(fields.object().contains(kOriginal) && !original) {}
  std::optional<int64_t> original;  ///< original_max_position_embeddings
  bool null_original;               ///< the field is there and null
  bool by_kind = false;             ///< the class has a rotation for each kind of layer
  std::optional<int64_t> positions = {};  ///< max_position_embeddings, with by_kind
};

/// Reads original_max_position_embeddings. If the field stands inside and outside of the
/// object, transformers takes the outer number. A class with a rotation for each kind of
/// layer reads the inner number alone, and takes max_position_embeddings if that is
/// absent.
int64_t read_original_positions(const ConfigFields& rope, const Outside& outside) {
  constexpr const char* kKey = kOriginal;
  if (outside.null_original && !outside.by_kind) {
    rope.fail(kKey,
              "is null outside of the object, which transformers refuses; remove it");
  }
  const auto inner = rope.integer(kKey, 1, kMaxOriginal);
  const auto& outer = outside.original;
  if (outer && inner && *outer != *inner) {
    rope.fail(kKey,
              "= {} disagrees with {} = {} outside of the object{}; keep one of them",
              *inner, kKey, *outer,
              outside.by_kind ? ", which transformers does not read"
                              : ", the value that transformers takes");
  }
  if (outside.by_kind && outer && !inner && outer != outside.positions) {
    rope.fail(kKey,
              "is missing, and {} = {} outside of the object is not read by "
              "transformers 5, which takes max_position_embeddings = {} here; write the "
              "number that is meant inside of the object",
              kKey, *outer, outside.positions.value_or(0));
  }
  if (outer) return *outer;
  return rope.required_integer(kKey, 1, kMaxOriginal);
}

double positive_number(const ConfigFields& rope, const char* key, double absent) {
  const double value = rope.number(key).value_or(absent);
  if (value <= 0.0) rope.fail(key, "= {} must be greater than 0", value);
  return value;
}

/// Returns attention_factor, or computes it from mscale and mscale_all_dim, or from the
/// factor alone.
double read_attention_factor(const ConfigFields& rope, double factor) {
  constexpr const char *kGiven = "attention_factor", *kAbove = "mscale",
                       *kBelow = "mscale_all_dim";
  const auto grown = [&](double by) {
    return factor <= 1.0 ? 1.0 : 0.1 * by * std::log(factor) + 1.0;
  };
  const bool given = rope.find(kGiven) != nullptr;
  const bool above = rope.find(kAbove) != nullptr, below = rope.find(kBelow) != nullptr;
  if (given && (above || below)) {
    rope.fail(above ? kAbove : kBelow,
              "has no effect beside attention_factor, which transformers takes; keep one "
              "of them");
  }
  if (given) return positive_number(rope, kGiven, 1.0);
  if (above != below) {
    rope.fail(above ? kAbove : kBelow,
              "has no effect in transformers without {}; set both or none",
              above ? kBelow : kAbove);
  }
  if (!above) return grown(1.0);
  const double scale = positive_number(rope, kAbove, 1.0);
  return grown(scale) / grown(positive_number(rope, kBelow, 1.0));
}

void read_yarn(const ConfigFields& rope, const Outside& outside, RopeConfig& out) {
  out.kind = RopeConfig::Kind::Yarn;
  out.factor = rope.required_number("factor");
  out.original_max_position_embeddings = read_original_positions(rope, outside);
  out.beta_fast = positive_number(rope, "beta_fast", out.beta_fast);
  out.beta_slow = positive_number(rope, "beta_slow", out.beta_slow);
  if (out.beta_fast < out.beta_slow) {
    rope.fail("beta_fast", "= {} must not be less than beta_slow = {}", out.beta_fast,
              out.beta_slow);
  }
  if (outside.by_kind && rope.object().value("truncate", OrderedJson(true)) != true) {
    rope.fail("truncate", "= {} has no effect in transformers; remove it",
              json_text(rope.object().at("truncate")));
  }
  if (rope.object().contains("truncate") && rope.find("truncate") == nullptr) {
    rope.fail("truncate",
              "is null, which transformers takes for false; set true or false");
  }
  out.truncate = rope.boolean("truncate").value_or(true);
  out.attention_factor = read_attention_factor(rope, out.factor);
}

void read_scaling(const ConfigFields& rope, const std::string& kind,
                  const Outside& outside, RopeConfig& out) {
  if (kind == "default") {
    out.kind = RopeConfig::Kind::Plain;
  } else if (kind == "linear") {
    out.kind = RopeConfig::Kind::Linear;
    out.factor = rope.required_number("factor");
  } else if (kind == "llama3") {
    out.kind = RopeConfig::Kind::Llama3;
    out.factor = rope.required_number("factor");
    out.low_freq_factor = rope.required_number("low_freq_factor");
    out.high_freq_factor = rope.required_number("high_freq_factor");
    out.original_max_position_embeddings = read_original_positions(rope, outside);
    if (out.low_freq_factor <= 0.0 || out.high_freq_factor <= out.low_freq_factor) {
      rope.fail("high_freq_factor",
                "= {} must be greater than low_freq_factor = {}, and low_freq_factor "
                "greater than 0",
                out.high_freq_factor, out.low_freq_factor);
    }
  } else if (kind == "yarn") {
    read_yarn(rope, outside, out);
  } else {
    rope.fail("rope_type",
              "\"{}\" is not available; supported: \"default\", \"linear\", \"llama3\", "
              "\"yarn\"",
              kind);
  }
  if (out.factor < 1.0) rope.fail("factor", "= {} must be at least 1", out.factor);
  refuse_unknown(rope, out.kind);
}

/// A base frequency within an object.
struct InnerTheta {
  std::string name;  ///< with the object's name
  std::optional<double> value;
};

InnerTheta theta_within(const ConfigFields& rope) {
  if (rope.object().contains("rope_theta") && !rope.find("rope_theta")) {
    rope.fail("rope_theta", "is null, which transformers refuses; give it a number");
  }
  return {rope.name("rope_theta"), rope.number("rope_theta")};
}

/// Returns the base frequency, of which `key` is the name outside of objects, or nothing
/// if the file has none.
std::optional<double> read_theta(const ConfigFields& fields, const char* key,
                                 const InnerTheta& inner) {
  const auto outer = fields.number(key);
  if (outer && inner.value && *outer != *inner.value) {
    fields.fail(key, "= {} disagrees with {} = {}; keep one of them", *outer, inner.name,
                *inner.value);
  }
  const auto theta = inner.value ? inner.value : outer;
  if (!theta && fields.object().contains(key)) {
    fields.fail(key, "is null, which transformers refuses; give it a number");
  }
  if (theta && *theta <= 1.0) {
    fields.fail(inner.value ? inner.name : key, "= {} must be greater than 1", *theta);
  }
  return theta;
}

/// Returns `inner`, the base frequency within an object. If it is absent, returns the
/// base that transformers takes then: rope_theta outside of objects, or `absent_theta`.
double theta_beside(const ConfigFields& fields, std::optional<double> inner,
                    double absent_theta) {
  return inner.value_or(fields.number("rope_theta").value_or(absent_theta));
}

/// Refuses two objects that disagree: transformers takes rope_scaling if both are there.
void refuse_difference(const ConfigFields& fields, const RopeConfig& scaling,
                       const RopeConfig& parameters) {
  const auto look = [&](const char* name, auto first, auto second) {
    if (first == second) return;
    fields.fail("rope_scaling",
                "disagrees with rope_parameters: {} is {} by the first, which "
                "transformers takes, and {} by the second; keep one of them",
                name, first, second);
  };
  look("rope_type", rope_type_name(scaling.kind), rope_type_name(parameters.kind));
  look("factor", scaling.factor, parameters.factor);
  look("low_freq_factor", scaling.low_freq_factor, parameters.low_freq_factor);
  look("high_freq_factor", scaling.high_freq_factor, parameters.high_freq_factor);
  look("original_max_position_embeddings", scaling.original_max_position_embeddings,
       parameters.original_max_position_embeddings);
  look("beta_fast", scaling.beta_fast, parameters.beta_fast);
  look("beta_slow", scaling.beta_slow, parameters.beta_slow);
  look("truncate", scaling.truncate, parameters.truncate);
  look("attention_factor", scaling.attention_factor, parameters.attention_factor);
  look("rope_theta", scaling.theta, parameters.theta);
}

/// Returns an object of the rotation, or null if the field is absent, null or an empty
/// object, which mean the same to transformers.
const OrderedJson* rope_object(const ConfigFields& fields, const char* key) {
  const OrderedJson* json = fields.find(key);
  if (json && !json->is_object()) {
    fields.fail(key, "expected an object or null, found {}", json_text(*json));
  }
  return json && !json->empty() ? json : nullptr;
}

/// Returns the object of one kind of layer within rope_parameters, or null if the kind
/// has none.
const OrderedJson* object_of_kind(const ConfigFields& fields,
                                  const OrderedJson& parameters, const char* kind) {
  for (const auto& [key, value] : parameters.items()) {
    if (key == "full_attention" || key == "sliding_attention") continue;
    fields.fail("rope_parameters",
                "has \"{}\", where this family has an object for each kind of layer: "
                "\"full_attention\", \"sliding_attention\"",
                key);
  }
  const auto found = parameters.find(kind);
  if (found == parameters.end() || found->is_null()) return nullptr;
  if (!found->is_object()) {
    fields.fail("rope_parameters", "expected an object for \"{}\", found {}", kind,
                json_text(*found));
  }
  return &*found;
}

/// Adds the fields of rope_scaling to an object of rope_parameters, as transformers does,
/// and refuses two values of one field.
void merge(const ConfigFields& fields, const OrderedJson& scaling,
           const std::string& place, OrderedJson& all) {
  for (const auto& [key, value] : scaling.items()) {
    if (all.contains(key) && all[key] != value) {
      fields.fail("rope_scaling",
                  "disagrees with {}: {} is {} by the first, which transformers takes, "
                  "and {} by the second; keep one of them",
                  place, key, json_text(value), json_text(all[key]));
    }
    all[key] = value;
  }
}

}  // namespace

std::string rope_type_name(RopeConfig::Kind kind) {
  if (kind == RopeConfig::Kind::Llama3) return "llama3";
  if (kind == RopeConfig::Kind::Yarn) return "yarn";
  return kind == RopeConfig::Kind::Linear ? "linear" : "default";
}

int64_t rotated_features(const ConfigFields& fields, const std::string& name, double part,
                         int64_t head_dim) {
  if (part <= 0.0 || part > 1.0) {
    fields.fail(name, "= {} must be above 0 and at most 1", part);
  }
  const auto features = static_cast<int64_t>(static_cast<double>(head_dim) * part);
  if (features < 2 || features % 2 != 0) {
    fields.fail(name,
                "= {} of heads of {} gives {} features; the number of features must be "
                "even",
                part, head_dim, features);
  }
  return features;
}

RopeConfig read_rope(const ConfigFields& fields, double absent_theta) {
  RopeConfig rope;
  const OrderedJson* parameters = rope_object(fields, "rope_parameters");
  const OrderedJson* scaling = rope_object(fields, "rope_scaling");
  const Outside outside(fields);
  InnerTheta inner_theta;
  if (scaling) {
    const ConfigFields inner(*scaling, fields.file(), "rope_scaling.");
    const std::string kind = kind_name(inner, "");
    if (kind.empty()) inner.fail("rope_type", "is missing");
    inner_theta = theta_within(inner);
    read_scaling(inner, kind, outside, rope);
  }
  if (parameters) {
    const ConfigFields inner(*parameters, fields.file(), "rope_parameters.");
    RopeConfig second;
    read_scaling(inner, kind_name(inner, "default"), outside, second);
    const InnerTheta theta = theta_within(inner);
    if (scaling) {
      rope.theta = theta_beside(fields, inner_theta.value, absent_theta);
      second.theta = theta_beside(fields, theta.value, absent_theta);
      refuse_difference(fields, rope, second);
    }
    rope = second;
    if (theta.value) inner_theta = theta;
  }
  const auto theta = read_theta(fields, "rope_theta", inner_theta);
  if (!theta && !written_before_rope_theta(fields)) {
    fields.fail("rope_theta",
                "is missing, and no default is safe (Llama 2: 10000, Llama 3: 500000); "
                "only files of transformers before 4.33 may leave it out, this one says "
                "transformers_version {}. Add it, or set model.override.rope_theta",
                fields.text("transformers_version").value_or("(absent)"));
  }
  rope.theta = theta.value_or(absent_theta);
  return rope;
}

Rotation read_part_rope(const ConfigFields& fields, int64_t head_dim) {
  constexpr const char* kPart = "partial_rotary_factor";
  OrderedJson usual = fields.object();
  const auto outside = fields.number(kPart);
  std::optional<double> taken;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const OrderedJson* object = rope_object(fields, key);
    if (object == nullptr) continue;
    const ConfigFields inner(*object, fields.file(), std::string(key) + ".");
    const auto inside = inner.number(kPart);
    const double value = inside ? *inside : outside.value_or(1.0);
    if (taken.value_or(value) != value || outside.value_or(value) != value) {
      inner.fail(kPart, "({}) disagrees with another place ({}); keep one of them", value,
                 taken ? *taken : *outside);
    }
    if (object->contains(kPart) && !inside) {
      inner.fail(kPart, "is null, which transformers refuses; give it a number");
    }
    taken = value;
    usual[key].erase(kPart);
  }
  if (!taken && !outside && fields.object().contains(kPart)) {
    fields.fail(kPart, "is null, which transformers refuses; give it a number");
  }
  const double part = taken ? *taken : outside.value_or(1.0);
  return {read_rope(ConfigFields(usual, fields.file())),
          rotated_features(fields, kPart, part, head_dim)};
}

RopeConfig read_rope_of_kind(const ConfigFields& fields, const char* kind,
                             const char* theta_field, double absent_theta, bool scales) {
  const OrderedJson* parameters = rope_object(fields, "rope_parameters");
  const OrderedJson* scaling = scales ? rope_object(fields, "rope_scaling") : nullptr;
  const OrderedJson* own =
      parameters ? object_of_kind(fields, *parameters, kind) : nullptr;
  // transformers adds rope_scaling to the object of the kind and fails without that
  // object, even if rope_scaling is empty.
  const bool both = fields.find("rope_scaling") && fields.find("rope_parameters");
  if (scales && both && !own) {
    fields.fail("rope_scaling",
                "stands beside rope_parameters without \"{}\", to which transformers "
                "adds it; add that object",
                kind);
  }
  OrderedJson all = own ? *own : OrderedJson::object();
  const std::string place = fmt::format("rope_parameters.{}", kind);
  if (scaling) merge(fields, *scaling, place, all);
  const ConfigFields rope(all, fields.file(),
                          !scaling ? place + "."
                          : own    ? fmt::format("rope_scaling and {}: ", place)
                                   : "rope_scaling.");
  const std::string type = kind_name(rope, scaling && !own ? "" : "default");
  if (type.empty()) rope.fail("rope_type", "is missing");
  if (scaling && !own && type != "default" && !rope.find("rope_type")) {
    rope.fail(
        "type",
        "\"{}\" is not read by transformers 5, which takes \"default\" here and "
        "leaves factor = {} without effect; earlier versions take \"{}\". Write "
        "\"rope_type\": \"{}\" for the second, or remove rope_scaling for the first",
        type, all.contains("factor") ? json_text(all["factor"]) : "(absent)", type, type);
  }
  Outside outside(fields);
  outside.by_kind = true;
  outside.positions = fields.integer("max_position_embeddings", 1, kMaxOriginal);
  RopeConfig out;
  read_scaling(rope, type, outside, out);
  out.theta = read_theta(fields, theta_field, theta_within(rope)).value_or(absent_theta);
  return out;
}

}  // namespace longhaul::families
