#include "longhaul/families/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "longhaul/base/text.h"
#include "longhaul/families/rope.h"

// Parameters are split as in "Megatron-LM" (Shoeybi et al.): the first projection of a
// branch by rows, the second by columns.

namespace longhaul::families {
namespace {

Feature add_branch(UnitMaker& unit, const Branch& branch, const Feature& x) {
  const Feature in = branch.before ? add_norm(unit, *branch.before, x) : x;
  Feature y = std::visit([&](const auto& layer) { return add_layer(unit, layer, in); },
                         branch.core);
  if (branch.after) y = add_norm(unit, *branch.after, y);
  return branch.dropout > 0.0 || branch.scale != 1.0 ? unit.elementwise(y) : y;
}

UnitDescription describe_embedding(const Network& network) {
  UnitMaker unit(UnitKind::Embedding, 0, network.stddev);
  add_embedding(unit, network.embedding, network.width);
  return unit.take();
}

void describe_head(const Network& network, ModelDescription& model) {
  const Table& tokens = network.embedding.tokens;
  UnitMaker unit(UnitKind::Head, 0, network.stddev);
  const Feature x = unit.input(network.width);
  std::visit([&](const auto& head) { add_head(unit, head, x, tokens, model); },
             network.head);
  model.units.push_back(unit.take());
}

/// Returns whether dropout takes place within the layer itself, as in attention.
bool drops(const Core& core) {
  return by_kind(
      core, [](const Attention& layer) { return layer.dropout > 0.0; },
      [](const FeedForward&) { return false; }, [](const Experts&) { return false; });
}

bool drops(const Network& network) {
  if (network.embedding.dropout > 0.0) return true;
  for (const Block& block : network.blocks) {
    for (const Step& step : block) {
      for (const Branch& branch : step.branches) {
        if (branch.dropout > 0.0 || drops(branch.core)) return true;
      }
    }
  }
  return false;
}

UnitDescription describe_block(const Network& network, int64_t layer) {
  UnitMaker unit(UnitKind::Block, layer, network.stddev);
  Feature x = unit.input(network.width);
  for (const Step& step : network.blocks.at(static_cast<size_t>(layer))) {
    std::vector<Feature> terms;
    for (const Branch& branch : step.branches) {
      terms.push_back(add_branch(unit, branch, x));
    }
    x = unit.sum(x, terms);
    if (step.of_stream) x = add_norm(unit, *step.of_stream, x);
  }
  return unit.take();
}

/// Layers whose attention has the same window and the same rotation.
struct LayerKind {
  std::string window, rotation;
  std::vector<size_t> layers;
};

std::string rotation_text(const std::optional<Rotation>& rotation) {
  if (!rotation) return "no rotation";
  const RopeConfig& rope = rotation->rope;
  const std::string base = fmt::format("rotation with base {}", rope.theta);
  if (rope.kind == RopeConfig::Kind::Plain) return base;
  return fmt::format("{}, {} by {}", base, rope_type_name(rope.kind), rope.factor);
}

/// Returns the kinds of the layers with attention. The kind of most layers comes last.
std::vector<LayerKind> layer_kinds_of(const Network& network) {
  std::vector<LayerKind> kinds;
  for (size_t i = 0; i < network.blocks.size(); ++i) {
    const Attention* attention = attention_of(network.blocks[i]);
    if (attention == nullptr) continue;
    const std::string window = attention->window
                                   ? fmt::format("a window of {}", *attention->window)
                                   : "all positions";
    const std::string rotation = rotation_text(attention->rotation);
    const auto same = [&](const LayerKind& kind) {
      return kind.window == window && kind.rotation == rotation;
    };
    const auto found = std::ranges::find_if(kinds, same);
    (found == kinds.end() ? kinds.emplace_back(window, rotation) : *found)
        .layers.push_back(i);
  }
  std::ranges::stable_sort(kinds, {},
                           [](const LayerKind& kind) { return kind.layers.size(); });
  return kinds;
}

/// Returns "layers 3, 7, 11 and 6 more (the last of every 4)".
std::string layers_text(const std::vector<size_t>& layers, size_t all) {
  const size_t period = layers.front() + 1;
  bool even = (layers.size() + 1) * period > all;
  std::vector<std::string> numbers;
  for (size_t i = 0; i < layers.size(); ++i) {
    even = even && layers[i] + 1 == (i + 1) * period;
    numbers.push_back(std::to_string(layers[i]));
  }
  return fmt::format("{} {}{}", layers.size() == 1 ? "layer" : "layers",
                     listed(numbers, 3),
                     even ? fmt::format(" (the last of every {})", period) : "");
}

/// Returns the block's first layer of the kind, or null.
template <typename Layer>
const Layer* first_of(const Block& block) {
  for (const Step& step : block) {
    for (const Branch& branch : step.branches) {
      if (const auto* layer = std::get_if<Layer>(&branch.core)) return layer;
    }
  }
  return nullptr;
}

}  // namespace

const Attention* attention_of(const Block& block) { return first_of<Attention>(block); }

const Experts* experts_of(const Block& block) { return first_of<Experts>(block); }

int64_t most_experts(const Network& network) {
  int64_t most = 0;
  for (const Block& block : network.blocks) {
    if (const Experts* layer = experts_of(block)) {
      most = std::max<int64_t>(most, std::ssize(layer->experts));
    }
  }
  return most;
}

ModelDescription describe(const Network& network) {
  ModelDescription model;
  model.passed = {{"hidden", network.width}};
  model.max_positions = network.max_positions;
  model.drops = drops(network);
  model.optional_prefix = network.optional_prefix;
  model.old_endings = network.old_endings;
  model.buffers = network.buffers;
  model.units.push_back(describe_embedding(network));
  for (size_t i = 0; i < network.blocks.size(); ++i) {
    model.units.push_back(describe_block(network, static_cast<int64_t>(i)));
  }
  describe_head(network, model);
  const int64_t routers = std::ranges::count_if(
      network.blocks, [](const Block& block) { return experts_of(block) != nullptr; });
  for (const char* name : {kRouterBalance, kRouterZ}) {
    if (routers == 0) break;
    model.losses.push_back(
        {.name = name, .over = LossTerm::Over::Positions, .layers = routers});
  }
  return model;
}

std::string layer_kinds(const Network& network) {
  const std::vector<LayerKind> kinds = layer_kinds_of(network);
  if (kinds.size() < 2) return "";
  std::set<std::string> windows, rotations;
  for (const LayerKind& kind : kinds) {
    windows.insert(kind.window);
    rotations.insert(kind.rotation);
  }
  std::vector<std::string> parts;
  for (const LayerKind& kind : kinds) {
    std::vector<std::string> words;
    if (windows.size() > 1) words.push_back(kind.window);
    if (rotations.size() > 1) words.push_back(kind.rotation);
    parts.push_back(fmt::format("{}: {}",
                                &kind == &kinds.back()
                                    ? fmt::format("the other {}", kind.layers.size())
                                    : layers_text(kind.layers, network.blocks.size()),
                                fmt::join(words, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace longhaul::families
