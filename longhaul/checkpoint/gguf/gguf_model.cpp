#include "longhaul/checkpoint/gguf/gguf_model.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/gguf/gguf_architecture.h"
#include "longhaul/format/q8_0.h"

namespace longhaul::checkpoint {
namespace {

using families::Attention;
using families::Experts;
using families::FeedForward;
using format::GgufType;
using format::GgufValue;

/// Returns a field of the objects in which config.json holds the rotation, or null.
const OrderedJson* rope_field(const OrderedJson& config, const char* key) {
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    const auto object = config.find(place);
    if (object == config.end() || !object->is_object()) continue;
    const auto inner = object->find("full_attention");
    const OrderedJson& fields =
        inner != object->end() && inner->is_object() ? *inner : *object;
    const auto found = fields.find(key);
    if (found != fields.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

// ---- keys ----

class Keys {
 public:
  Keys(const LlamaCppModel& model, format::GgufValues& out)
      : prefix_(fmt::format("{}.", model.architecture.name)), out_(out) {}
  void set(const std::string& key, GgufValue value) {
    out_.emplace_back(prefix_ + key, std::move(value));
  }
  void count(const std::string& key, int64_t value) {
    LH_CHECK(value >= 0 && value <= UINT32_MAX, "gguf", "{} is {}", key, value);
    set(key, static_cast<uint32_t>(value));
  }
  void number(const std::string& key, double value) {
    set(key, static_cast<float>(value));
  }

 private:
  std::string prefix_;
  format::GgufValues& out_;
};

int64_t integer_field(const LlamaCppModel& model, const char* key) {
  return model.json.at(key).get<int64_t>();
}

/// Returns the inner width that the key feed_forward_length has.
int64_t inner_width(const LlamaCppModel& model) {
  if (model.is("qwen3_moe")) return integer_field(model, "intermediate_size");
  const families::Block& block = model.network.blocks.front();
  if (const Experts* experts = families::experts_of(block)) {
    return experts->experts.front().up.out;
  }
  return std::get<FeedForward>(branches_of(block).back()->core).up.out;
}

void set_rope(const LlamaCppModel& model, Keys& keys) {
  const RopeConfig& rope = *model.rope();
  const auto given = [&](const char* field, const char* key, double value) {
    if (rope_field(model.json, field) != nullptr) keys.number(key, value);
  };
  if (rope.kind == RopeConfig::Kind::Linear) {
    keys.set("rope.scaling.type", std::string("linear"));
    keys.number("rope.scaling.factor", rope.factor);
  } else if (rope.kind == RopeConfig::Kind::Yarn) {
    keys.set("rope.scaling.type", std::string("yarn"));
    keys.number("rope.scaling.factor", rope.factor);
    keys.count("rope.scaling.original_context_length",
               rope.original_max_position_embeddings);
    given("attention_factor", "rope.scaling.yarn_attn_factor", rope.attention_factor);
    given("beta_fast", "rope.scaling.yarn_beta_fast", rope.beta_fast);
    given("beta_slow", "rope.scaling.yarn_beta_slow", rope.beta_slow);
  }
  keys.number("rope.freq_base", rope.theta);
  if (model.architecture.windows && model.sliding != nullptr) {
    keys.number("rope.freq_base_swa", model.sliding->rotation->rope.theta);
  }
}

/// Sets the keys of the layers that have a window. Gemma 3's pattern is written where it
/// is not the one that llama.cpp takes without the key, of which the converter does not
/// know.
void set_windows(const LlamaCppModel& model, Keys& keys) {
  if (!model.architecture.windows || model.sliding == nullptr) return;
  keys.count("attention.sliding_window", *model.sliding->window);
  std::vector<bool> pattern;
  bool usual = model.is("gemma3_text");
  for (const families::Block& block : model.network.blocks) {
    pattern.push_back(attention_in(block).window.has_value());
    usual = usual && pattern.back() == (pattern.size() % 6 != 0);
  }
  if (!usual) keys.set("attention.sliding_window_pattern", std::move(pattern));
}

void set_experts(const LlamaCppModel& model, Keys& keys) {
  const Experts* experts = families::experts_of(model.network.blocks.front());
  if (experts == nullptr) return;
  keys.count("expert_count", std::ssize(experts->experts));
  keys.count("expert_used_count", experts->top_k);
  if (model.is("qwen3_moe")) {
    keys.count("expert_feed_forward_length", experts->experts.front().up.out);
  }
}

void set_granite(const LlamaCppModel& model, Keys& keys) {
  keys.number("attention.scale", *model.attention().scale);
  keys.number("embedding_scale", model.network.embedding.scale);
  keys.number("residual_scale", model.network.blocks.front()[0].branches[0].scale);
  keys.number("logit_scale", model.head.logits_divisor);
}

void set_values(const LlamaCppModel& model, format::GgufValues& out) {
  Keys keys(model, out);
  const families::Network& network = model.network;
  const Attention& attention = model.attention();
  const bool layer_norms = model.head.norm.kind == families::Norm::Kind::Layer;
  keys.count("block_count", std::ssize(network.blocks));
  keys.count("context_length", network.max_positions);
  keys.count("embedding_length", network.width);
  keys.count("feed_forward_length", inner_width(model));
  keys.count("attention.head_count", network.query_heads);
  if (layer_norms) {
    keys.number("attention.layer_norm_epsilon", model.head.norm.eps);
    if (!model.is("gpt_neox")) return;
    keys.count("rope.dimension_count", attention.rotation->features);
    keys.set("use_parallel_residual", network.blocks.front().size() == 1);
    // The base of GPT-NeoX is 10000 for the converter, and for llama.cpp without the key.
    if (model.rope()->theta != 1e4) keys.number("rope.freq_base", model.rope()->theta);
    return;
  }
  keys.count("attention.head_count_kv", network.key_heads);
  set_rope(model, keys);
  keys.number("attention.layer_norm_rms_epsilon", model.head.norm.eps);
  set_experts(model, keys);
  const bool says_head_dim =
      model.architecture.always_head_dim ||
      (model.json.contains("head_dim") && !model.json["head_dim"].is_null()) ||
      attention.head_dim * network.query_heads != network.width;
  if (says_head_dim && !model.is("granite")) {
    keys.count("attention.key_length", attention.head_dim);
    keys.count("attention.value_length", attention.head_dim);
  }
  set_windows(model, keys);
  if (model.architecture.says_vocabulary) {
    keys.count("vocab_size", model.config.vocab_size);
    keys.count("rope.dimension_count", attention.head_dim);
  }
  if (model.is("granite")) set_granite(model, keys);
}

// ---- tensors ----

class PartList {
 public:
  PartList(const LlamaCppModel& model, GgufType type, std::vector<GgufPart>& out)
      : model_(model), type_(type), out_(out) {}

  /// Adds a tensor of parameters of one shape. Several parameters lie one behind the
  /// other, as rows, or with `stacked` as the elements of a new outer dim.
  GgufPart& add(const std::string& name, std::vector<std::string> parameters,
                bool stacked = false) {
    std::vector<int64_t> shape = model_.shapes.at(parameters.front());
    if (stacked) {
      shape.insert(shape.begin(), std::ssize(parameters));
    } else if (parameters.size() > 1) {
      shape[0] = 0;
      for (const std::string& one : parameters) shape[0] += model_.shapes.at(one)[0];
    }
    GgufPart part;
    part.tensor = {name, shape, type_of(name, shape)};
    part.parameters = std::move(parameters);
    out_.push_back(std::move(part));
    return out_.back();
  }

  void linear(const std::string& name, const families::Linear& layer, int64_t heads = 0) {
    add(name + ".weight", {layer.name + ".weight"}).heads = heads;
    if (layer.bias) add(name + ".bias", {layer.name + ".bias"}).heads = heads;
  }

  void norm(const std::string& name, const families::Norm& norm) {
    const bool layer = norm.kind == families::Norm::Kind::Layer;
    add(name + ".weight", {norm.name + ".weight"}).plus_one =
        !layer && norm.form == RmsForm::OnePlusWeight;
    if (layer) add(name + ".bias", {norm.name + ".bias"});
  }

  void attention(const std::string& block, const Attention& layer) {
    if (model_.architecture.joins_projections) {
      for (const char* end : {".weight", ".bias"}) {
        add(block + "attn_qkv" + end,
            {layer.query.name + end, layer.key.name + end, layer.value.name + end});
      }
    } else {
      const bool turns = model_.architecture.turns_neighbours;
      linear(block + "attn_q", layer.query, turns ? model_.network.query_heads : 0);
      linear(block + "attn_k", layer.key, turns ? model_.network.key_heads : 0);
      linear(block + "attn_v", layer.value);
    }
    linear(block + "attn_output", layer.out);
    if (layer.query_norm) norm(block + "attn_q_norm", *layer.query_norm);
    if (layer.key_norm) norm(block + "attn_k_norm", *layer.key_norm);
  }

  void feed_forward(const std::string& block, const FeedForward& layer) {
    if (layer.gate) linear(block + "ffn_gate", *layer.gate);
    linear(block + "ffn_up", layer.up);
    linear(block + "ffn_down", layer.down);
  }

  void experts(const std::string& block, const Experts& layer) {
    linear(block + "ffn_gate_inp", layer.router);
    std::vector<std::string> gates, ups, downs;
    for (const FeedForward& expert : layer.experts) {
      gates.push_back(expert.gate->name + ".weight");
      ups.push_back(expert.up.name + ".weight");
      downs.push_back(expert.down.name + ".weight");
    }
    constexpr bool stacked = true;
    add(block + "ffn_gate_exps.weight", std::move(gates), stacked);
    add(block + "ffn_up_exps.weight", std::move(ups), stacked);
    add(block + "ffn_down_exps.weight", std::move(downs), stacked);
  }

 private:
  GgufType type_of(const std::string& name, const std::vector<int64_t>& shape) const {
    if (shape.size() == 1 || name == "position_embd.weight" ||
        name.ends_with("ffn_gate_inp.weight")) {
      return GgufType::F32;
    }
    const bool whole = shape.back() % format::kQ8Elements == 0;
    return type_ == GgufType::Q8_0 && !whole ? GgufType::F16 : type_;
  }

  const LlamaCppModel& model_;
  GgufType type_;
  std::vector<GgufPart>& out_;
};

/// Returns the divisors of llama3's frequencies, in fp32 as the converter computes them.
std::vector<float> rope_divisors(const RopeConfig& rope, int64_t head_dim) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  std::vector<float> divisors;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const float power = static_cast<float>(i) / static_cast<float>(head_dim);
    const float frequency = 1.0F / std::pow(static_cast<float>(rope.theta), power);
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
    const auto factor = static_cast<float>(rope.factor);
    if (wavelength < static_cast<float>(original / rope.high_freq_factor)) {
      divisors.push_back(1.0F);
    } else if (wavelength > static_cast<float>(original / rope.low_freq_factor)) {
      divisors.push_back(factor);
    } else {
      const float smooth =
          (static_cast<float>(original) / wavelength - low) / (high - low);
      divisors.push_back(1.0F / ((1.0F - smooth) / factor + smooth));
    }
  }
  return divisors;
}

void set_parts(const LlamaCppModel& model, GgufType type, bool stores_head,
               std::vector<GgufPart>& out) {
  PartList parts(model, type, out);
  const RopeConfig* rope = model.rope();
  if (rope != nullptr && rope->kind == RopeConfig::Kind::Llama3) {
    GgufPart& part = out.emplace_back();
    part.values = rope_divisors(*rope, model.attention().head_dim);
    part.tensor = {"rope_freqs.weight", {std::ssize(part.values)}, GgufType::F32};
  }
  const families::Embedding& embedding = model.network.embedding;
  parts.add("token_embd.weight", {embedding.tokens.name + ".weight"});
  if (embedding.positions) {
    parts.add("position_embd.weight", {embedding.positions->name + ".weight"});
  }
  for (size_t i = 0; i < model.network.blocks.size(); ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    const auto branches = branches_of(model.network.blocks[i]);
    const families::Branch &first = *branches.front(), &second = *branches.back();
    if (first.before) parts.norm(block + "attn_norm", *first.before);
    parts.attention(block, std::get<Attention>(first.core));
    if (first.after) parts.norm(block + "post_attention_norm", *first.after);
    if (second.before) parts.norm(block + "ffn_norm", *second.before);
    families::by_kind(
        second.core,
        [&](const Attention&) {
          fail_input("gguf", "the last branch of layer {} is an attention", i);
        },
        [&](const FeedForward& layer) { parts.feed_forward(block, layer); },
        [&](const Experts& layer) { parts.experts(block, layer); });
    if (second.after) parts.norm(block + "post_ffw_norm", *second.after);
  }
  parts.norm("output_norm", model.head.norm);
  if (model.head.tied && !stores_head) {
    if (model.architecture.needs_head) {
      parts.add("output.weight", {embedding.tokens.name + ".weight"});
    }
    return;
  }
  // A tied head is no parameter of the description, and has the embedding's shape.
  GgufPart& head = parts.add("output.weight", {embedding.tokens.name + ".weight"});
  head.parameters = {model.head.name + ".weight"};
}

/// Returns so many parameters in at least two digits: "8.03B" has three.
std::string rounded_count(double parameters) {
  static constexpr std::pair<double, char> kUnits[] = {
      {1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}};
  double unit = 1e3;
  char letter = 'K';
  for (const auto& [size, name] : kUnits) {
    if (parameters <= size) continue;
    unit = size;
    letter = name;
    break;
  }
  const double scaled = parameters / unit;
  const double whole = std::nearbyint(scaled);
  const int digits = whole < 1.0 ? 0 : whole < 10.0 ? 1 : 2;
  return fmt::format("{:.{}f}{}", scaled, 2 - digits, letter);
}

}  // namespace

GgufModel describe_gguf(const ModelConfig& config, GgufType type, bool stores_head) {
  const LlamaCppArchitecture* const architecture = find_architecture(config.model_type);
  if (architecture == nullptr) {
    fail_input("gguf",
               "{}: models of the type {} are not written as GGUF; llama.cpp's "
               "architectures {} are",
               config.source_path.string(), config.model_type, gguf_architectures());
  }
  if (config.description.has_base) {
    fail_input("gguf", "{}: the model has an adapter; merge it (--merge)",
               config.source_path.string());
  }
  const LlamaCppModel model(config, *architecture);
  check_architecture(model);
  GgufModel gguf;
  gguf.architecture = architecture->name;
  set_values(model, gguf.values);
  set_parts(model, type, stores_head, gguf.parts);
  return gguf;
}

std::string gguf_size_label(const GgufModel& model) {
  double shared = 0.0, of_expert = 0.0;
  int64_t experts = 0;
  for (const GgufPart& part : model.parts) {
    const auto elements = static_cast<double>(part.tensor.num_elements());
    if (part.tensor.name.find("_exps.") == std::string::npos) {
      shared += elements;
      continue;
    }
    experts = part.tensor.shape[0];
    of_expert += elements / static_cast<double>(experts);
  }
  if (experts == 0) return rounded_count(shared);
  return fmt::format("{}x{}", experts, rounded_count(shared + of_expert));
}

}  // namespace longhaul::checkpoint
