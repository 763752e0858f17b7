#include "longhaul/checkpoint/gguf/gguf_architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "longhaul/base/error.h"

namespace longhaul::checkpoint {
namespace {

using families::Attention;
using families::Experts;
using families::FeedForward;

constexpr LlamaCppArchitecture kArchitectures[] = {
    {.model_type = "llama",
     .name = "llama",
     .turns_neighbours = true,
     .any_head_dim = true,
     .always_head_dim = true,
     .scales_by_table = true,
     .says_vocabulary = true},
    {.model_type = "mistral",
     .name = "llama",
     .turns_neighbours = true,
     .any_head_dim = true,
     .always_head_dim = true,
     .scales_by_table = true,
     .says_vocabulary = true},
    {.model_type = "mixtral",
     .name = "llama",
     .turns_neighbours = true,
     .any_head_dim = true,
     .scales_by_table = true,
     .says_vocabulary = true},
    {.model_type = "qwen2", .name = "qwen2"},
    {.model_type = "qwen3",
     .name = "qwen3",
     .any_head_dim = true,
     .always_head_dim = true},
    {.model_type = "qwen3_moe", .name = "qwen3moe", .any_head_dim = true},
    {.model_type = "gemma3_text",
     .name = "gemma3",
     .any_head_dim = true,
     .always_head_dim = true,
     .windows = true},
    {.model_type = "olmo2", .name = "olmo2", .needs_head = true},
    {.model_type = "olmo3", .name = "olmo2", .windows = true, .needs_head = true},
    {.model_type = "granite",
     .name = "granite",
     .turns_neighbours = true,
     .biases = true,
     .scales_by_table = true,
     .says_vocabulary = true},
    {.model_type = "smollm3",
     .name = "smollm3",
     .turns_neighbours = true,
     .any_head_dim = true,
     .says_vocabulary = true},
    {.model_type = "gpt2", .name = "gpt2", .joins_projections = true, .biases = true},
    {.model_type = "gpt_neox",
     .name = "gptneox",
     .joins_projections = true,
     .biases = true,
     .needs_head = true},
};

template <class... Args>
[[noreturn]] void cannot_say(const LlamaCppModel& model, fmt::format_string<Args...> what,
                             Args&&... args) {
  fail_input("gguf", "{}: {}. llama.cpp's architecture {} does not have this",
             model.config.source_path.string(),
             fmt::format(what, std::forward<Args>(args)...), model.architecture.name);
}

bool nearly_equal(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

/// Returns the factor of scores that the architecture takes where no key gives it.
double usual_scale(const LlamaCppModel& model) {
  // llama.cpp takes a Gemma 3 of 62 layers for the one of 27B parameters.
  const bool large = model.is("gemma3_text") && model.network.blocks.size() == 62;
  const auto width =
      large ? static_cast<double>(model.network.width / model.network.query_heads)
            : static_cast<double>(model.attention().head_dim);
  return 1.0 / std::sqrt(width);
}

void check_rope(const LlamaCppModel& model, size_t layer, const Attention& attention) {
  const RopeConfig& rope = attention.rotation->rope;
  using Kind = RopeConfig::Kind;
  if (attention.window && model.architecture.windows) {
    if (rope.kind != Kind::Plain) {
      cannot_say(model, "layer {} has a window and a scaled rotation", layer);
    }
    if (model.is("olmo3") && rope.theta != model.rope()->theta) {
      cannot_say(model,
                 "layers with a window have the rotation's base {}, and those without {}",
                 rope.theta, model.rope()->theta);
    }
    return;
  }
  if (rope.kind == Kind::Plain) return;
  if (rope.kind == Kind::Llama3 && !model.architecture.scales_by_table) {
    cannot_say(model, "the rotation is scaled as llama3");
  }
  if (model.is("gpt_neox")) cannot_say(model, "the rotation is scaled");
  if (rope.kind != Kind::Yarn) return;
  const double usual = 0.1 * std::log(rope.factor) + 1.0;
  if (!nearly_equal(rope.attention_factor, usual)) {
    cannot_say(model,
               "YaRN's attention_factor is {}, and not {} as its factor {} gives it",
               rope.attention_factor, usual, rope.factor);
  }
  if (!rope.truncate) cannot_say(model, "YaRN's truncate is false");
}

void check_attention(const LlamaCppModel& model, size_t layer,
                     const Attention& attention) {
  const LlamaCppArchitecture& a = model.architecture;
  const bool turns = !model.is("gpt2") && !(model.is("smollm3") && layer % 4 == 3);
  if (attention.rotation.has_value() != turns) {
    cannot_say(model, "layer {} has {} rotation", layer, turns ? "no" : "a");
  }
  if (turns) check_rope(model, layer, attention);
  if (!a.any_head_dim &&
      attention.head_dim * model.network.query_heads != model.network.width) {
    cannot_say(model, "head_dim is {}, and not the hidden width {} over {} heads",
               attention.head_dim, model.network.width, model.network.query_heads);
  }
  if (attention.score_cap > 0.0) cannot_say(model, "scores of attention have a bound");
  if (attention.window && !a.windows && *attention.window < model.network.max_positions) {
    cannot_say(model,
               "layer {} has a window of {} positions, and the model {} positions. Set "
               "sliding_window to null if texts are never longer than the window",
               layer, *attention.window, model.network.max_positions);
  }
  if (!model.is("granite") &&
      !nearly_equal(attention.scale_of<double>(attention.head_dim), usual_scale(model))) {
    cannot_say(model, "scores of attention have the factor {}, and not {}",
               attention.scale_of<double>(attention.head_dim), usual_scale(model));
  }
  if (attention.out.bias && !a.biases) {
    cannot_say(model, "the output of attention has a bias");
  }
  if (a.joins_projections && !attention.query.bias) {
    cannot_say(model, "the projections of attention have no biases");
  }
}

void check_layer(const LlamaCppModel& model, size_t layer) {
  const families::Block& block = model.network.blocks[layer];
  check_attention(model, layer, attention_in(block));
  const bool mixes = families::has_experts(model.network);
  const Experts* experts = families::experts_of(block);
  if (mixes && experts == nullptr) {
    cannot_say(model, "layer {} has a plain feed-forward, and others have experts",
               layer);
  }
  if (experts != nullptr && !experts->normalised) {
    cannot_say(model,
               "the weights of a token's experts do not add up to one "
               "(norm_topk_prob is false)");
  }
  const families::Core& core = branches_of(block).back()->core;
  families::by_kind(
      core, [](const Attention&) {},
      [&](const FeedForward& second) {
        if (second.down.bias && !model.architecture.biases) {
          cannot_say(model, "the feed-forward has biases");
        }
      },
      [](const Experts&) {});
}

}  // namespace

const LlamaCppArchitecture* find_architecture(std::string_view model_type) {
  const auto* found =
      std::ranges::find_if(kArchitectures, [&](const LlamaCppArchitecture& architecture) {
        return model_type == architecture.model_type;
      });
  return found == std::end(kArchitectures) ? nullptr : found;
}

std::string gguf_architectures() {
  std::string names;
  std::set<std::string_view> seen;
  for (const LlamaCppArchitecture& one : kArchitectures) {
    if (!seen.insert(one.name).second) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  }
  return names;
}

const Attention& attention_in(const families::Block& block) {
  return *families::attention_of(block);
}

std::vector<const families::Branch*> branches_of(const families::Block& block) {
  std::vector<const families::Branch*> found;
  for (const families::Step& step : block) {
    for (const families::Branch& branch : step.branches) found.push_back(&branch);
  }
  return found;
}

LlamaCppModel::LlamaCppModel(const ModelConfig& model, const LlamaCppArchitecture& of)
    : config(model),
      network(model.network),
      architecture(of),
      json(parse_ordered_json(model.source_json, model.source_path.string())),
      head(std::get<families::LanguageHead>(model.network.head)) {
  for (const ParameterDescription& p : model.description.parameters()) {
    shapes[p.name] = p.shape;
  }
  const auto whole = std::ranges::find_if(network.blocks, [](const auto& block) {
    return attention_in(block).rotation && !attention_in(block).window;
  });
  const auto windowed = std::ranges::find_if(network.blocks, [](const auto& block) {
    return attention_in(block).rotation && attention_in(block).window;
  });
  if (whole != network.blocks.end()) full = &attention_in(*whole);
  if (windowed != network.blocks.end()) sliding = &attention_in(*windowed);
  if (full == nullptr) full = sliding;
}

void check_architecture(const LlamaCppModel& model) {
  for (size_t i = 0; i < model.network.blocks.size(); ++i) check_layer(model, i);
}

}  // namespace longhaul::checkpoint
