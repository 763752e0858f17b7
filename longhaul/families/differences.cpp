#include "longhaul/families/differences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/families/adapter.h"
#include "longhaul/families/family.h"

namespace longhaul {
namespace {

/// Fields that change how a model is trained or used, but not what its weights compute.
constexpr const char* kNotOfResult =
    "architectures attention_dropout attention_probs_dropout_prob attn_pdrop "
    "bos_token_id embd_pdrop eos_token_id hidden_dropout_prob initializer_range "
    "n_positions max_position_embeddings output_router_logits pad_token_id resid_pdrop "
    "router_aux_loss_coef";

/// Values by their JSON pointers; values within objects are listed one by one.
using Values = std::map<std::string, OrderedJson>;

void add_values(const OrderedJson& json, const std::string& place, Values& out) {
  if (!json.is_object()) {
    out[place] = json;
    return;
  }
  for (const auto& [key, value] : json.items()) {
    add_values(value, (OrderedJson::json_pointer(place) / key).to_string(), out);
  }
}

/// Returns the values of the fields that are read of the model.
Values values_read(const ModelConfig& model) {
  const OrderedJson json = parse_ordered_json(model.source_json, "config.json");
  Values values;
  const families::Family* family = families::find_family(model.model_type);
  LH_ASSERT(family != nullptr, "no family '{}'", model.model_type);
  for (const std::string& field : families::fields_read(*family)) {
    if (json.contains(field)) add_values(json[field], "/" + field, values);
  }
  return values;
}

std::string text_of(const Values& values, const std::string& place) {
  const auto found = values.find(place);
  if (found == values.end()) return "absent";
  const OrderedJson& value = found->second;
  return value.is_number_float() ? fmt::format("{}", value.get<double>())
                                 : json_text(value);
}

bool is_same_model(const ModelConfig& a, const ModelConfig& b) {
  // [adapter] adds to the network what config.json does not say.
  return families::without_adapters(a.network) == families::without_adapters(b.network) &&
         a.bos_token_ids == b.bos_token_ids && a.eos_token_ids == b.eos_token_ids;
}

/// Returns whether the model changes, or can no longer be read, when one field is
/// replaced.
bool matters(const ModelConfig& model, const std::string& place, const Values& theirs) {
  OrderedJson json = parse_ordered_json(model.source_json, "config.json");
  const OrderedJson::json_pointer pointer(place);
  try {
    const auto replaced = theirs.find(place);
    if (replaced != theirs.end()) {
      json[pointer] = replaced->second;
    } else {
      json.at(pointer.parent_pointer()).erase(pointer.back());
    }
    return !is_same_model(model, parse_model_config(json_text(json), model.source_path));
  } catch (const std::exception&) {
    return true;
  }
}

ModelDifference difference(const std::string& place, const Values& ours,
                           const Values& theirs) {
  std::string field = place.substr(1);
  std::ranges::replace(field, '/', '.');
  const bool of_result = !has_word(kNotOfResult, field);
  return {field, text_of(ours, place), text_of(theirs, place), of_result};
}

ModelConfig parse_saved(std::string_view text, const fs::path& file,
                        std::span<const ModelOverride> overrides) {
  try {
    try {
      return parse_model_config(text, file);
    } catch (const InputError&) {
      if (overrides.empty()) throw;
      return parse_model_config(text, file, overrides);
    }
  } catch (const InputError& error) {
    // The text comes from a checkpoint whose hash is right. So the file is not damaged,
    // and the message must not say that it is.
    fail_config("model",
                "the model of the checkpoint cannot be compared with the run's: {}",
                error.what());
  }
}

}  // namespace

std::vector<ModelDifference> differing_fields(const ModelConfig& ours,
                                              const ModelConfig& theirs) {
  if (ours.model_type != theirs.model_type) {
    return {{"model_type", ours.model_type, theirs.model_type, true}};
  }
  if (is_same_model(ours, theirs)) return {};
  const Values our = values_read(ours), their = values_read(theirs);
  Values places = our;
  places.insert(their.begin(), their.end());
  std::vector<ModelDifference> all, result;
  for (const auto& [place, value] : places) {
    if (text_of(our, place) == text_of(their, place)) continue;
    all.push_back(difference(place, our, their));
    if (matters(ours, place, their)) result.push_back(all.back());
  }
  return result.empty() ? all : result;
}

void check_same_model(const ModelConfig& ours, std::string_view text,
                      const fs::path& theirs, const std::string& from,
                      std::span<const ModelOverride> overrides) {
  std::vector<std::string> lines;
  const ModelConfig saved = parse_saved(text, theirs, overrides);
  for (const ModelDifference& d : differing_fields(ours, saved)) {
    lines.push_back(fmt::format("{} is {}, was {}", d.field, d.ours, d.theirs));
  }
  if (lines.empty()) return;
  fail_config("model",
              "{} is another model than that of {} ({}): {}; restore the file, or start "
              "a new run with another run.dir and init.weights",
              ours.source_path.string(), from, theirs.string(), fmt::join(lines, "; "));
}

}  // namespace longhaul
