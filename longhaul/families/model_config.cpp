#include "longhaul/families/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/config/rules.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/family.h"
#include "longhaul/families/plausible_sizes.h"
#include "longhaul/format/refused_forms.h"

namespace longhaul {
namespace {

using families::ConfigFields;
using families::Family;

constexpr uint64_t kMaxModelBytes = uint64_t{1} << 24;

/// Fields that are read of every model.
constexpr const char* kCommon =
    "architectures bos_token_id eos_token_id is_causal model_type quantization_config "
    "vocab_size";

/// Fields that do not change the mathematics.
constexpr const char* kHarmless =
    "_name_or_path transformers_version use_cache torch_dtype dtype pad_token_id "
    "unk_token_id return_dict";

/// Fields of other families that would change the mathematics if a file switched them on.
constexpr const char* kOtherMathematics =
    "num_experts per_layer_config num_local_experts n_routed_experts "
    "attn_logit_softcapping final_logit_softcapping logits_scaling embedding_multiplier "
    "attention_multiplier residual_multiplier use_qk_norm qk_norm use_sliding_window "
    "hidden_dropout hidden_dropout_prob resid_pdrop embd_pdrop attn_pdrop no_rope_layers "
    "num_nextn_predict_layers rope_interleaved use_parallel_residual clip_qkv "
    "parallel_attn scale_embeddings";

/// Returns all families for a message: "llama" (Llama 1, 2 ...), ...
std::string supported() {
  std::string text;
  for (const Family& family : families::all_families()) {
    text += fmt::format("{}\"{}\" ({})", text.empty() ? "" : ", ", family.model_type,
                        family.about);
  }
  return text;
}

const Family& family_of(const ConfigFields& fields) {
  const auto type = fields.text("model_type");
  if (!type) fields.fail("model_type", "is missing; supported: {}", supported());
  const Family* family = families::find_family(*type);
  if (family == nullptr && fields.find("vision_config") != nullptr) {
    fields.fail("vision_config",
                "is that of a model of images and text, which is not available; {}",
                *type == "gemma3"
                    ? "`longhaul docs importing#the-text-model-of-gemma-3` has the lines "
                      "that write its text model alone"
                    : "take a model of text of the same makers");
  }
  if (family == nullptr) {
    fields.fail("model_type", "\"{}\" is not available yet; supported: {}", *type,
                supported());
  }
  return *family;
}

void check_architectures(const ConfigFields& fields, const Family& family) {
  const OrderedJson* named = fields.find("architectures");
  if (!named) return;
  if (!named->is_array()) fields.fail("architectures", "expected a list of names");
  const std::vector<std::string> known = split_words(family.architectures);
  for (const OrderedJson& item : *named) {
    if (item.is_string() && std::ranges::count(known, item.get<std::string>()) > 0)
      continue;
    fields.fail("architectures", "{} is not available; supported: \"{}\"",
                json_text(item), known.front());
  }
}

/// Returns " (gptq, 4 bits)", as far as a quantization_config tells.
std::string quantisation(const OrderedJson& config) {
  if (!config.is_object()) return "";
  const auto named = config.find("quant_method");
  const auto bits = config.find("bits");
  std::string text;
  if (named != config.end() && named->is_string()) {
    text = named->get<std::string>().substr(0, 40);
  }
  const bool counted_bits = bits != config.end() && bits->is_number_unsigned();
  if (counted_bits) {
    text += fmt::format("{}{} bits", text.empty() ? "" : ", ", bits->get<uint64_t>());
  } else if (config.value("load_in_4bit", OrderedJson()) == true) {
    text += text.empty() ? "4 bits" : ", 4 bits";
  }
  return text.empty() ? "" : fmt::format(" ({})", text);
}

/// Refuses fields that switch on the mathematics of other families. Returns the fields
/// that this program does not know.
std::vector<std::string> check_rest(const ConfigFields& fields, const Family& family) {
  const std::vector<std::string> read = fields_read(family);
  std::vector<std::string> ignored;
  for (const auto& [key, value] : fields.object().items()) {
    if (key == "quantization_config" && !families::is_off(value)) {
      fields.fail(key,
                  "says that the weights are quantised{}; train from the model that was "
                  "quantised (bf16, fp16 or fp32)",
                  quantisation(value));
    }
    if (std::ranges::count(read, key) > 0 || has_word(kHarmless, key)) continue;
    if (has_word(kOtherMathematics, key)) {
      if (families::is_off(value)) continue;
      fields.fail(key, "= {} changes the mathematics and is not available",
                  json_text(value).substr(0, 80));
    }
    ignored.push_back(key);
  }
  return ignored;
}

/// Refuses a null if the class in transformers refuses it.
void check_nulls(const ConfigFields& fields, const Family& family) {
  for (const std::string& key : split_words(family.fields)) {
    if (!fields.object().contains(key) || fields.find(key) != nullptr) continue;
    if (has_word(family.nullable, key)) continue;
    fields.fail(key,
                "is null, which transformers refuses; give it a value, or set "
                "model.override.{}",
                key);
  }
}

/// Checks is_causal. In transformers each token of a decoder sees all others unless the
/// field is absent or true; null means false. In BERT each token always sees all others,
/// whatever the field says.
void check_causal(const ConfigFields& fields, const ModelDescription& model) {
  const auto& object = fields.object();
  const auto found = object.find("is_causal");
  if (!model.is_causal() || found == object.end() || *found == true) return;
  fields.fail("is_causal",
              "= {} is not available: a decoder's tokens see only the tokens before "
              "them; remove it, or set model.override.is_causal = true",
              json_text(*found).substr(0, 80));
}

void check_token_ids(const ConfigFields& fields, const ModelConfig& config) {
  const auto check = [&](const char* key, const std::vector<int64_t>& ids) {
    for (const int64_t id : ids) {
      if (id < config.vocab_size) continue;
      fields.fail(key, "= {} is not below vocab_size = {}", id, config.vocab_size);
    }
  };
  check("bos_token_id", config.bos_token_ids);
  check("eos_token_id", config.eos_token_ids);
}

/// Replaces fields of the source. rope_theta goes into rope_parameters if the source has
/// that object.
void apply_overrides(OrderedJson& json, std::span<const ModelOverride> overrides) {
  for (const ModelOverride& item : overrides) {
    const OrderedJson value =
        parse_ordered_json(item.json, "model.override." + item.field);
    const bool inside = item.field == "rope_theta" && json.contains("rope_parameters") &&
                        json["rope_parameters"].is_object();
    (inside ? json["rope_parameters"] : json)[item.field] = value;
  }
}

void check_overrides(const Family& family, const std::string& file,
                     std::span<const ModelOverride> overrides) {
  const std::vector<std::string> read = fields_read(family);
  for (const ModelOverride& item : overrides) {
    if (std::ranges::count(read, item.field) > 0) continue;
    const auto nearest = nearest_name(item.field, read);
    fail_config(
        "model", "model.override: {} is not a field that this program reads from {}{}",
        item.field, file, nearest ? fmt::format("; did you mean {}?", *nearest) : "");
  }
}

}  // namespace

std::vector<std::string> families::fields_read(const Family& family) {
  return split_words(fmt::format("{} {}", family.fields, kCommon));
}

ModelConfig parse_model_config(std::string_view text, const fs::path& source,
                               std::span<const ModelOverride> overrides) {
  const std::string file = source.string();
  OrderedJson json = parse_ordered_json(text, file);
  if (!json.is_object()) fail_input("model", "{}: expected a JSON object", file);
  apply_overrides(json, overrides);
  const ConfigFields fields(json, file);
  const Family& family = family_of(fields);
  check_overrides(family, file, overrides);
  check_architectures(fields, family);

  ModelConfig config;
  config.model_type = family.model_type;
  config.vocab_size = fields.required_integer("vocab_size", 1, families::kMaxVocab);
  check_nulls(fields, family);
  family.read(fields, config);
  fields.layer_types(config.network.blocks.size());
  config.description = family.describe(config.network);
  check_description(config.description);
  check_causal(fields, config.description);
  config.ignored_fields = check_rest(fields, family);
  config.bos_token_ids = fields.token_ids("bos_token_id");
  config.eos_token_ids = fields.token_ids("eos_token_id");
  check_token_ids(fields, config);
  config.source_json = json_text(json, 2) + "\n";
  config.source_path = source;
  return config;
}

ModelConfig load_model_config(const fs::path& dir_or_json,
                              std::span<const ModelOverride> overrides) {
  if (!fs::exists(dir_or_json)) {
    fail_input("model", "{}; expected a Hugging Face directory or its config.json",
               missing_path(dir_or_json));
  }
  const fs::path file =
      fs::is_directory(dir_or_json) ? dir_or_json / "config.json" : dir_or_json;
  if (const std::string link = dangling_link(file); !link.empty()) {
    fail_input("model", "{}: {}", file.string(), link);
  }
  if (const std::string other = format::other_form(dir_or_json);
      !other.empty() && (!fs::exists(file) || file.extension() == ".gguf")) {
    throw InputError("model", dir_or_json.string() + ": " + other);
  }
  if (!fs::exists(file)) {
    fail_input("model", "{} has no config.json; expected a Hugging Face directory{}",
               dir_or_json.string(),
               fs::exists(dir_or_json / "store.json")
                   ? "; this one is a token store, which is data"
                   : "");
  }
  if (file.extension() != ".json") {
    fail_input(
        "model",
        "{}: is no config.json; expected a Hugging Face directory or its config.json",
        file.string());
  }
  return parse_model_config(read_text(file, kMaxModelBytes), file, overrides);
}

std::string to_hf_config_json(const ModelConfig& config, std::string_view dtype_name) {
  OrderedJson json = parse_ordered_json(config.source_json, config.source_path.string());
  json.erase("transformers_weights");  // the export's files have the usual names
  const std::string name(dtype_name);
  // Files of transformers 5 say dtype, older ones torch_dtype.
  const bool is_new = json.contains("dtype") || json.contains("rope_parameters");
  const bool is_old = json.contains("torch_dtype") || !is_new;
  if (is_old) json["torch_dtype"] = name;
  if (json.contains("dtype") || !is_old) json["dtype"] = name;
  return json_text(json, 2) + "\n";
}

namespace {

/// Returns the share of a layer's experts that each token is sent to.
double least_part(const families::Experts& experts) {
  return static_cast<double>(experts.top_k) / static_cast<double>(experts.router.out);
}

/// Warns if no layer can use less than the share experts.warn_below of its experts. A
/// token goes to k different experts, so that no expert has a larger share of the choices
/// than 1/k. The exponential of the entropy of such shares is at least k.
void warn_of_bound(const RunConfig& config, const families::Network& network,
                   std::vector<std::string>& warnings) {
  const std::string key = "experts.warn_below";
  const double limit = config.experts.warn_below;
  if (!config::given(config, key)) return;
  // The layer with the smallest share of experts for each token.
  const families::Experts* found = nullptr;
  for (const families::Block& block : network.blocks) {
    const families::Experts* experts = families::experts_of(block);
    if (experts != nullptr &&
        (found == nullptr || least_part(*experts) < least_part(*found)))
      found = experts;
  }
  if (found == nullptr) return;
  const double least = least_part(*found);
  if (limit <= 0.0 || limit > least) return;
  warnings.push_back(fmt::format(
      "{}: {} = {:g} can never warn: each token goes to {} of {} experts, so at "
      "least {:g} of them are in use; {}",
      config::origin(config, key), key, limit, found->top_k, found->router.out, least,
      least < 1.0 ? fmt::format("set it above {:g}, or 0", least) : "set it to 0"));
}

/// Warns if config.json has a weight for the balancing loss, but does not switch the loss
/// on.
void warn_of_balance(const ModelConfig& model, std::vector<std::string>& warnings) {
  constexpr const char* kWeight = "router_aux_loss_coef";
  const std::string file = model.source_path.string();
  if (!parse_ordered_json(model.source_json, file).contains(kWeight)) return;
  if (model.network.balance == 0.0) return;
  warnings.push_back(fmt::format(
      "{}: {} = {:g} has no effect, and no loss balances the experts: config.json does "
      "not ask for it (output_router_logits); set experts.balance = \"sequence\", or "
      "\"off\" if that is meant",
      file, kWeight, model.network.balance));
}

}  // namespace

std::vector<std::string> settings_without_effect(const RunConfig& config,
                                                 const ModelConfig& model) {
  std::vector<std::string> warnings;
  const config::WarnUnused unused{config, warnings};
  if (!families::has_experts(model.network)) {
    for (const char* key : {"experts.balance", "experts.balance_weight", "experts.z_loss",
                            "experts.warn_below"}) {
      unused(true, key, "the model has no experts");
    }
  } else if (config.experts.balance == BalanceKind::Model &&
             !model.network.asks_for_balance) {
    unused(true, "experts.balance_weight",
           "experts.balance is \"model\", and config.json does not ask for that loss "
           "(output_router_logits); set experts.balance");
    if (!config::given(config, "experts.balance_weight"))
      warn_of_balance(model, warnings);
  }
  warn_of_bound(config, model.network, warnings);
  return warnings;
}

void check_trainable(const ModelConfig& model) {
  if (!model.training_problem.empty()) throw ConfigError("model", model.training_problem);
}

}  // namespace longhaul
