#include "longhaul/checkpoint/hf/peft.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <variant>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/read/finite_values.h"
#include "longhaul/config/rules.h"
#include "longhaul/families/adapter.h"
#include "longhaul/families/config_fields.h"
#include "longhaul/format/safetensors.h"

namespace longhaul::checkpoint {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 24;

/// Fields of LoraConfig that are read here, that the names of the tensors tell, or that
/// change no result. Any other field must be off.
constexpr const char* kHonoured =
    "auto_mapping base_model_name_or_path bias exclude_modules inference_mode "
    "init_lora_weights layers_pattern layers_to_transform lora_alpha lora_dropout "
    "megatron_core modules_to_save peft_type peft_version qalora_group_size r revision "
    "target_modules target_parameters task_type use_dora use_rslora";

/// Values of init_lora_weights that leave the base as it is.
constexpr const char* kPlainInits = "gaussian orthogonal eva";

/// The tensors of adapter_model.safetensors. Nobody reads them by blocks of a file.
class PeftSource final : public WeightsSource {
 public:
  explicit PeftSource(const fs::path& dir)
      : source_{ModelSource::Kind::HfDirectory, dir, {}},
        file_(format::SafetensorsFile::open(dir / kPeftWeights)) {
    const std::string prefix = kPeftPrefix;
    for (const format::SafetensorsEntry& entry : file_.header().entries) {
      if (!entry.name.starts_with(prefix)) {
        fail_input("adapter", "{}: {} does not begin with {}, as PEFT names all tensors",
                   (dir / kPeftWeights).string(), entry.name, prefix);
      }
      entries_.emplace(entry.name.substr(prefix.size()), &entry);
    }
  }
  const ModelSource& source() const override { return source_; }
  std::vector<format::TensorSlice> tensors() const override {
    std::vector<format::TensorSlice> all;
    for (const auto& [name, entry] : entries_) {
      all.push_back(format::TensorSlice::whole(name, entry->shape, entry->dtype));
    }
    return all;
  }
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override {
    const auto found = entries_.find(box.name);
    LH_CHECK(found != entries_.end() && found->second->shape == box.global_shape,
             "weights", "{} has no {} of shape {}", source_.path.string(), box.name,
             format::describe_shape(box.global_shape));
    const format::SafetensorsEntry& entry = *found->second;
    format::TensorSlice wanted = box;
    wanted.dtype = dst;
    format::read_box(
        [&](uint64_t offset, std::span<std::byte> bytes) {
          file_.read(entry, offset, bytes);
        },
        format::TensorSlice::whole(box.name, entry.shape, entry.dtype), wanted, out);
  }
  const StoredTensors& stored() const override {
    LH_ASSERT(false, "{} is read by tensors", source_.path.string());
  }
  bool as_stored(const std::string& /*name*/) const override { return false; }
  fs::path config_path() const override { return source_.path / kPeftConfig; }
  std::vector<CarriedFile> files_to_carry() const override { return {}; }
  std::vector<std::string> ignored() const override { return {}; }

 private:
  ModelSource source_;
  format::SafetensorsFile file_;
  std::map<std::string, const format::SafetensorsEntry*> entries_;
};

[[noreturn]] void refuse(const fs::path& file, const std::string& field,
                         const OrderedJson& value, const std::string& why) {
  fail_input("adapter", "{}: {} = {} {}", file.string(), field,
             json_text(value).substr(0, 80), why);
}

void check_fields(const fs::path& file, const OrderedJson& json) {
  const auto kind = json.find("peft_type");
  if (kind == json.end() || *kind != "LORA") {
    refuse(file, "peft_type", kind == json.end() ? OrderedJson() : *kind,
           "is not available; only \"LORA\" is, with or without use_dora");
  }
  const bool is_eva = json.value("init_lora_weights", OrderedJson()) == "eva";
  for (const auto& [key, value] : json.items()) {
    if (has_word(kHonoured, key) || families::is_off(value)) continue;
    // The field eva_config says how PEFT chose the first values. Training has replaced
    // them.
    if (is_eva && key == "eva_config") continue;
    refuse(file, key, value, "changes the result and is not available");
  }
  if (const auto bias = json.find("bias"); bias != json.end() && *bias != "none") {
    refuse(file, "bias", *bias, "is not available; only \"none\" is");
  }
  const auto init = json.find("init_lora_weights");
  if (init == json.end() || init->is_boolean() || init->is_null()) return;
  if (init->is_string() && has_word(kPlainInits, init->get<std::string>())) return;
  refuse(file, "init_lora_weights", *init,
         "means a base with other weights than the model's, which is not available; save "
         "the adapter for the unchanged base first "
         "(path_initial_model_for_weight_conversion "
         "in PEFT)");
}

/// Returns a number of the file, or `absent`.
double number_of(const fs::path& file, const OrderedJson& json, const char* field,
                 double absent) {
  const auto found = json.find(field);
  if (found == json.end()) return absent;
  if (!found->is_number()) refuse(file, field, *found, "is no number");
  return found->get<double>();
}

bool flag_of(const fs::path& file, const OrderedJson& json, const char* field) {
  const auto found = json.find(field);
  if (found == json.end() || found->is_null()) return false;
  if (!found->is_boolean()) refuse(file, field, *found, "is neither true nor false");
  return found->get<bool>();
}

/// Returns the layers with low-rank parts as target_modules: the last parts of their
/// names where these mean the same layers, else their whole names.
std::set<std::string> target_modules(const ModelConfig& model) {
  std::set<std::string> whole, parts, others;
  for (const families::NamedLinear& one : families::linear_layers(model.network)) {
    const std::string& name = one.layer->name;
    const std::string part = name.substr(name.rfind('.') + 1);
    if (one.layer->adapter && !one.of_expert) {
      whole.insert(name);
      parts.insert(part);
    } else {
      others.insert(part);
    }
  }
  // The head of BERT has linear layers that are not among these.
  const bool exact = !std::holds_alternative<families::BertHead>(model.network.head) &&
                     std::ranges::none_of(
                         parts, [&](const auto& part) { return others.contains(part); });
  return exact ? parts : whole;
}

/// Returns the tensors of experts with low-rank parts as target_parameters: without their
/// layers where these mean the same tensors, else their whole names.
std::set<std::string> target_parameters(const ModelConfig& model) {
  const auto end_of = [](const std::string& name) {
    const size_t module = name.rfind('.', name.rfind('.') - 1);
    return name.substr(name.rfind('.', module - 1) + 1);
  };
  std::set<std::string> whole, ends, others;
  for (const families::Block& block : model.network.blocks) {
    const families::Experts* layer = families::experts_of(block);
    if (layer == nullptr) continue;
    const families::FeedForward& one = layer->experts.front();
    const auto take = [&](bool adapted, const std::string& name) {
      if (adapted) whole.insert(name);
      (adapted ? ends : others).insert(end_of(name));
    };
    take(one.up.adapter.has_value(), families::gate_up_of(*layer));
    take(one.down.adapter.has_value(), families::down_of(*layer));
  }
  const bool exact =
      std::ranges::none_of(ends, [&](const auto& end) { return others.contains(end); });
  return exact ? ends : whole;
}

/// Returns the first of the names for a message.
std::string join_some(std::vector<std::string> names) {
  constexpr size_t kMost = 8;
  const bool cut = names.size() > kMost;
  names.resize(std::min(names.size(), kMost));
  return fmt::format("{}{}", fmt::join(names, ", "), cut ? " ..." : "");
}

/// Returns the names of a list of the file. A text is a list of one name.
std::vector<std::string> names_of(const fs::path& file, const OrderedJson& json,
                                  const char* field) {
  const auto found = json.find(field);
  if (found == json.end() || found->is_null()) return {};
  if (found->is_string()) return {found->get<std::string>()};
  std::vector<std::string> names;
  for (const OrderedJson& name : *found) {
    if (!found->is_array() || !name.is_string()) {
      refuse(file, field, *found, "is neither a text nor a list of names");
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

/// Compiles a pattern of the file. The forms of Python that are not those of ECMAScript
/// are refused.
std::regex pattern_of(const fs::path& file, const OrderedJson& json, const char* field,
                      const std::string& text) {
  constexpr size_t kMostOfPattern = 4096;
  try {
    if (text.size() <= kMostOfPattern) return std::regex(text);
  } catch (const std::regex_error&) {
  }
  refuse(file, field, *json.find(field),
         "has a pattern that cannot be read here; give a list of names");
}

/// Returns those of `modules` that a field of PEFT means: a text is a pattern of whole
/// names, and a list has whole names and last parts.
std::set<std::string> meant_by(const fs::path& file, const OrderedJson& json,
                               const char* field, const std::set<std::string>& modules) {
  std::set<std::string> found;
  const auto value = json.find(field);
  if (value != json.end() && value->is_string()) {
    const std::regex pattern = pattern_of(file, json, field, value->get<std::string>());
    for (const std::string& module : modules) {
      if (std::regex_match(module, pattern)) found.insert(module);
    }
    return found;
  }
  const std::vector<std::string> names = names_of(file, json, field);
  for (const std::string& module : modules) {
    if (std::ranges::any_of(names, [&](const auto& name) {
          return module == name || module.ends_with("." + name);
        })) {
      found.insert(module);
    }
  }
  return found;
}

/// Takes away the modules of the layers that layers_to_transform leaves out. PEFT counts
/// the same way: the first number behind a part that layers_pattern means is that of the
/// layer.
void keep_layers(const fs::path& file, const OrderedJson& json,
                 std::set<std::string>& modules) {
  const auto layers = json.find("layers_to_transform");
  if (layers == json.end() || layers->is_null()) return;
  if (layers->is_array() && layers->empty()) return;
  std::vector<std::string> parts = names_of(file, json, "layers_pattern");
  if (parts.empty()) parts = {"[^.]*"};
  std::vector<std::regex> patterns;
  for (const std::string& part : parts) {
    patterns.push_back(pattern_of(file, json, "layers_pattern",
                                  "(?:.*?\\.)?(?:" + part + ")\\.([0-9]{1,9})\\..*"));
  }
  std::erase_if(modules, [&](const std::string& module) {
    for (const std::regex& pattern : patterns) {
      std::smatch match;
      if (!std::regex_match(module, match, pattern)) continue;
      const OrderedJson layer = std::stoll(match[match.size() - 1].str());
      // A number is its own only element.
      return std::find(layers->begin(), layers->end(), layer) == layers->end();
    }
    return true;
  });
}

/// Returns the tensors of experts that target_parameters means, each with the module that
/// PEFT's files name in its place. PEFT wraps a layer's experts once for each tensor.
std::map<std::string, std::string> wrapped_tensors(const fs::path& file,
                                                   const OrderedJson& json,
                                                   const ModelConfig& base) {
  constexpr const char* kField = "target_parameters";
  const auto value = json.find(kField);
  if (value != json.end() && value->is_string()) {
    refuse(file, kField, *value, "is no list of names");
  }
  std::map<std::string, std::string> found;
  const std::set<std::string> tensors = families::tensors_of_experts(base.network);
  for (const std::string& name : names_of(file, json, kField)) {
    bool any = false;
    for (const std::string& tensor : tensors) {
      if (tensor != name && !tensor.ends_with("." + name)) continue;
      found[tensor] = families::module_of(tensor);
      any = true;
    }
    if (any) continue;
    refuse(file, kField, *value,
           tensors.empty()
               ? "means tensors of experts, and the model has none"
               : fmt::format("has names that are not available; only those of "
                             "experts are, such as {}",
                             *tensors.begin()));
  }
  for (const families::Block& block : base.network.blocks) {
    const families::Experts* layer = families::experts_of(block);
    if (layer == nullptr || !found.contains(families::down_of(*layer))) continue;
    const auto inner = found.find(families::gate_up_of(*layer));
    if (inner != found.end()) inner->second += ".base_layer";
  }
  return found;
}

/// Throws InputError unless the adapter has tensors for exactly the modules of `base`
/// that the file means, and for all modules that it says are trained whole. `experts` are
/// the modules that the file means by target_parameters.
void check_modules(const fs::path& file, const OrderedJson& json, const ModelConfig& base,
                   const std::set<std::string>& adapted,
                   const std::set<std::string>& whole,
                   const std::map<std::string, std::string>& experts) {
  if (adapted.empty() && whole.empty()) {
    fail_input("adapter", "{}: the adapter has no tensors, and would change nothing",
               file.string());
  }
  std::set<std::string> layers, modules, lacking;
  for (const families::NamedLinear& one : families::linear_layers(base.network)) {
    if (!one.of_expert) layers.insert(one.layer->name);
  }
  modules = layers;
  const std::vector<std::string> saves = names_of(file, json, "modules_to_save");
  for (const ParameterDescription& p : base.description.parameters()) {
    const std::string module = families::module_of(p.name);
    if (p.expert) continue;
    if (p.shape.size() == 2) modules.insert(module);
    const std::string parts = "." + module + ".";
    const bool is_whole = std::ranges::any_of(saves, [&](const std::string& name) {
      return parts.find("." + name + ".") != std::string::npos;
    });
    if (!is_whole) continue;
    modules.erase(module);
    layers.erase(module);
    if (!whole.contains(module)) lacking.insert(module);
  }
  const auto targets = json.find("target_modules");
  const bool all = targets != json.end() && targets->is_string() &&
                   targets->get<std::string>() == kAllLinear;
  std::set<std::string> wanted =
      all ? layers : meant_by(file, json, "target_modules", modules);
  for (const std::string& module : meant_by(file, json, "exclude_modules", modules)) {
    wanted.erase(module);
  }
  if (targets != json.end() && targets->is_array()) keep_layers(file, json, wanted);
  for (const auto& [tensor, module] : experts) wanted.insert(module);
  std::ranges::set_difference(wanted, adapted, std::inserter(lacking, lacking.end()));
  if (!lacking.empty()) {
    fail_input("adapter",
               "{} means {} modules that the adapter has no tensors for: {}; bring the "
               "whole adapter",
               file.string(), lacking.size(),
               join_some({lacking.begin(), lacking.end()}));
  }
  std::vector<std::string> more;
  std::ranges::set_difference(adapted, wanted, std::back_inserter(more));
  if (!more.empty()) {
    fail_input("adapter",
               "{} means no low-rank part for {} modules that the adapter has tensors "
               "for: {}; name them in target_modules, or in target_parameters, or take "
               "their tensors out",
               file.string(), more.size(), join_some(more));
  }
}

template <typename T>
void check_same(const RunConfig& config, const char* key, const T& run, const T& file,
                const fs::path& dir, const char* field) {
  if (run == file) return;
  config::fail_key(config, key,
                   "{} is {}, but {} of {} says {}; an adapter is trained further as it "
                   "was made",
                   key, run, field, (dir / kPeftConfig).string(), file);
}

}  // namespace

std::string to_peft_config(const AdapterSection& section, const ModelConfig& model,
                           const std::string& base) {
  const bool causal = model.description.is_causal();
  const double alpha = *section.alpha;
  const bool is_whole = alpha == std::floor(alpha) && std::abs(alpha) < 1e15;
  OrderedJson json = {{"base_model_name_or_path", base},
                      {"bias", "none"},
                      {"fan_in_fan_out", false},
                      {"inference_mode", true},
                      {"init_lora_weights", true},
                      {"lora_alpha", is_whole ? OrderedJson(static_cast<int64_t>(alpha))
                                              : OrderedJson(alpha)},
                      {"lora_dropout", section.dropout},
                      {"modules_to_save", nullptr},
                      {"peft_type", "LORA"},
                      {"r", *section.rank},
                      {"target_modules", target_modules(model)},
                      {"task_type", causal ? OrderedJson("CAUSAL_LM") : OrderedJson()},
                      {"use_dora", section.kind == AdapterKind::Dora},
                      {"use_rslora", section.rslora}};
  const std::set<std::string> tensors = target_parameters(model);
  if (!tensors.empty()) json["target_parameters"] = tensors;
  const auto whole = families::modules_trained_whole(model.description);
  if (!whole.empty()) json["modules_to_save"] = whole;
  return json_text(json, 2) + "\n";
}

AdapterSection parse_peft_config(std::string_view text, const fs::path& file) {
  const OrderedJson json = parse_ordered_json(text, file.string());
  if (!json.is_object()) {
    fail_input("adapter", "{}: the file is not a JSON object", file.string());
  }
  check_fields(file, json);
  AdapterSection section;
  section.kind = flag_of(file, json, "use_dora") ? AdapterKind::Dora : AdapterKind::Lora;
  const auto number = [&](const char* field, double absent, auto is_right) {
    const double value = number_of(file, json, field, absent);
    if (!is_right(value)) refuse(file, field, *json.find(field), "is out of its range");
    return value;
  };
  section.rank = static_cast<int64_t>(number(
      "r", 8.0, [](double r) { return r >= 1.0 && r <= 65536.0 && r == std::floor(r); }));
  section.alpha = number("lora_alpha", 8.0, [](double a) { return a > 0.0 && a < 1e15; });
  section.rslora = flag_of(file, json, "use_rslora");
  if (!config::has_scale(section)) {
    refuse(file, "lora_alpha", *json.find("lora_alpha"), "is out of its range");
  }
  section.dropout =
      number("lora_dropout", 0.0, [](double p) { return p >= 0.0 && p < 1.0; });
  return section;
}

AdapterSection read_peft_config(const fs::path& dir) {
  const fs::path file = dir / kPeftConfig;
  if (!is_seen(file)) {
    fail_input(
        "adapter",
        "{}; expected the directory of an adapter in PEFT's format, with {} and {}",
        missing_path(file), kPeftConfig, kPeftWeights);
  }
  return parse_peft_config(read_text(file, kMaxConfigBytes), file);
}

SharedSource open_peft(const fs::path& dir) {
  if (!is_seen(dir / kPeftWeights)) {
    fail_input("adapter", "{}; {} is the only form of an adapter's tensors that is read",
               missing_path(dir / kPeftWeights), kPeftWeights);
  }
  const auto source = std::make_shared<PeftSource>(dir);
  for (const format::TensorSlice& tensor : source->tensors()) {
    if (format::is_float(tensor.dtype)) scan_finite(*source, tensor.name, tensor.dtype);
  }
  return source;
}

SharedSource fitting_peft(const SharedSource& adapter, const fs::path& dir,
                          const RunConfig& config, const ModelDescription& model) {
  const AdapterSection file = read_peft_config(dir);
  const AdapterSection& run = config.adapter;
  const auto name_of = [](const AdapterSection& s) {
    return std::string(s.kind == AdapterKind::Dora ? "dora" : "lora");
  };
  check_same(config, "adapter.kind", name_of(run), name_of(file), dir, "use_dora");
  check_same(config, "adapter.rank", *run.rank, *file.rank, dir, "r");
  check_same(config, "adapter.alpha", *run.alpha, *file.alpha, dir, "lora_alpha");
  check_same(config, "adapter.rslora", run.rslora, file.rslora, dir, "use_rslora");
  SharedSource parameters = as_parameters(adapter, model);
  check_tensors(dir.string(), parameters->tensors(), model.saved_tensors(), {});
  return parameters;
}

AdapterSection section_of_peft(const fs::path& dir, const WeightsSource& adapter,
                               const ModelConfig& base) {
  AdapterSection section = read_peft_config(dir);
  const fs::path file = dir / kPeftConfig;
  const OrderedJson json =
      parse_ordered_json(read_text(file, kMaxConfigBytes), file.string());
  std::set<std::string> adapted, whole;
  for (const format::TensorSlice& tensor : adapter.tensors()) {
    const size_t at = tensor.name.find(".lora_");
    if (at != std::string::npos) {
      adapted.insert(tensor.name.substr(0, at));
    } else {
      whole.insert(families::module_of(tensor.name));
    }
  }
  const auto experts = wrapped_tensors(file, json, base);
  check_modules(file, json, base, adapted, whole, experts);
  for (const auto& [tensor, module] : experts) {
    adapted.erase(module);
    adapted.insert(tensor);
  }
  section.modules.entries = {adapted.begin(), adapted.end()};
  section.save.entries = {whole.begin(), whole.end()};
  return section;
}

}  // namespace longhaul::checkpoint
