#include "longhaul/families/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "longhaul/base/counted.h"
#include "longhaul/families/bert_head.h"
#include "longhaul/families/unit_maker.h"

// Parameters are split as in "Megatron-LM" (Shoeybi et al.): the first projection of a
// branch by rows, the second by columns.

namespace longhaul::families {
namespace {

using Unit = format::ShardUnit;

Feature add_norm(UnitMaker& unit, const Norm& norm, const Feature& x,
                 std::optional<format::ShardSplit> split = {}) {
  if (norm.kind == Norm::Kind::Layer) return unit.layer_norm(norm.name, x, split);
  return unit.norm(norm.name + ".weight", x, norm.form);
}

Feature add_projection(UnitMaker& unit, const Projection& p, const Feature& x,
                       format::ShardSplit split) {
  if (p.stored) {
    return unit.stored_linear(p.name, *p.stored, p.out, x, split, p.bias, p.stddev);
  }
  const Feature y = unit.matrix(p.name + ".weight", p.out, x, split, p.stddev);
  // A bias behind a sum over the ranks is added where features are whole.
  if (p.bias) {
    unit.bias(p.name + ".bias", p.out,
              split.dim == 0 ? std::optional(split) : std::nullopt);
  }
  return y;
}

Feature add_head_norm(UnitMaker& unit, const Norm& norm, const Feature& x, Unit heads,
                      const Attention& attention) {
  const std::string name = norm.name + ".weight";
  const Feature y = attention.norms_over_all_heads
                        ? unit.wide_norm(name, x, {heads, 0})
                        : unit.head_norm(name, x, attention.head_dim, norm.form);
  if (attention.extras_last) unit.stands_last();
  return y;
}

/// Adds the projection of queries, keys or values.
Feature add_heads(UnitMaker& unit, const Projection& projection, const Feature& x,
                  Unit heads, const Attention& attention) {
  const Feature y = add_projection(unit, projection, x, {heads, 0});
  if (projection.bias && attention.extras_last) unit.stands_last();
  return y;
}

Feature add_core(UnitMaker& unit, const Attention& attention, const Feature& x) {
  if (!attention.causal) unit.both_ways();
  if (attention.window) unit.window(*attention.window);
  unit.enter();
  Feature q = add_heads(unit, attention.query, x, Unit::QueryHeads, attention);
  Feature k = add_heads(unit, attention.key, x, Unit::KeyHeads, attention);
  const Feature v = add_heads(unit, attention.value, x, Unit::KeyHeads, attention);
  if (attention.query_norm) {
    q = add_head_norm(unit, *attention.query_norm, q, Unit::QueryHeads, attention);
    k = add_head_norm(unit, *attention.key_norm, k, Unit::KeyHeads, attention);
  }
  if (attention.rotation) {
    q = unit.rope(q, attention.rotation->features);
    k = unit.rope(k, attention.rotation->features);
  }
  const Feature seen = unit.attention(q, k, v, attention.head_dim);
  return unit.leave(add_projection(unit, attention.out, seen, {Unit::QueryHeads, 1}));
}

/// Adds the projections of a feed-forward between `enter` and `leave`.
Feature add_inside(UnitMaker& unit, const FeedForward& layer, const Feature& x) {
  Feature inner;
  if (layer.gate) {
    const Feature gate = add_projection(unit, *layer.gate, x, {Unit::Elements, 0});
    inner =
        unit.gated_product(gate, add_projection(unit, layer.up, x, {Unit::Elements, 0}));
  } else {
    inner = unit.gelu(add_projection(unit, layer.up, x, {Unit::Elements, 0}));
  }
  return add_projection(unit, layer.down, inner, {Unit::Elements, 1});
}

Feature add_core(UnitMaker& unit, const FeedForward& layer, const Feature& x) {
  unit.enter();
  return unit.leave(add_inside(unit, layer, x));
}

/// Adds a mixture of experts. Every rank of a tp group routes all tokens. Each rank sees
/// a part of the experts' features and so holds a part of the router's gradient.
Feature add_core(UnitMaker& unit, const Experts& layer, const Feature& x) {
  unit.enter();
  const Feature logits = add_projection(unit, layer.router, x, {Unit::None, 0});
  std::vector<std::vector<std::string>> first, last;
  for (const FeedForward& expert : layer.experts) {
    first.push_back({expert.gate->name + ".weight", expert.up.name + ".weight"});
    last.push_back({expert.down.name + ".weight"});
  }
  const FeedForward& one = layer.experts.front();
  const Feature rows = unit.routed(x, logits, layer.top_k, layer.normalised);
  const auto inside = [&](const char* name) {
    return layer.fused.empty() ? std::string() : layer.fused + name;
  };
  const auto inner = unit.expert_matrices(first, inside(".gate_up_proj"), one.up.out,
                                          rows, {Unit::Elements, 0});
  const Feature product = unit.gated_product(inner.at(0), inner.at(1), /*weighed=*/true);
  const auto out = unit.expert_matrices(last, inside(".down_proj"), one.down.out, product,
                                        {Unit::Elements, 1});
  const Feature y = unit.gathered(out.at(0));
  if (layer.shared) add_inside(unit, *layer.shared, x);
  return unit.leave(y);
}

Feature add_branch(UnitMaker& unit, const Branch& branch, const Feature& x) {
  const Feature in = branch.before ? add_norm(unit, *branch.before, x) : x;
  Feature y =
      std::visit([&](const auto& core) { return add_core(unit, core, in); }, branch.core);
  if (branch.after) y = add_norm(unit, *branch.after, y);
  return branch.dropout > 0.0 || branch.scale != 1.0 ? unit.elementwise(y) : y;
}

UnitDescription describe_embedding(const Network& network) {
  const Embedding& embedding = network.embedding;
  const int64_t width = network.width;
  UnitMaker unit(UnitKind::Embedding, 0, network.stddev);
  unit.table(embedding.tokens.name + ".weight", embedding.tokens.rows, width,
             embedding.padding_row);
  if (embedding.positions) {
    unit.table(embedding.positions->name + ".weight", embedding.positions->rows, width);
  }
  unit.leave();
  if (embedding.types) {
    unit.whole_table(embedding.types->name + ".weight", embedding.types->rows, width);
  }
  if (embedding.norm) add_norm(unit, *embedding.norm, unit.looked_up(width));
  return unit.take();
}

void describe_head(const Network& network, const LanguageHead& head,
                   ModelDescription& model) {
  const std::string table = network.embedding.tokens.name + ".weight";
  const int64_t vocabulary = network.embedding.tokens.rows;
  UnitMaker unit(UnitKind::Head, 0, network.stddev);
  const Feature x = add_norm(unit, head.norm, unit.input(network.width));
  unit.enter();
  if (head.tied) {
    unit.tied_loss_head(vocabulary, x);
    model.tied = {table, head.name + ".weight"};
  } else {
    unit.loss_head(head.name + ".weight", vocabulary, x);
  }
  model.units.push_back(unit.take());
}

bool drops(const Network& network) {
  if (network.embedding.dropout > 0.0) return true;
  for (const Block& block : network.blocks) {
    for (const Step& step : block) {
      for (const Branch& branch : step.branches) {
        const auto* attention = std::get_if<Attention>(&branch.core);
        if (branch.dropout > 0.0) return true;
        if (attention != nullptr && attention->dropout > 0.0) return true;
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

/// Layers that are alike.
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

/// Returns the kinds, that of most layers last.
std::vector<LayerKind> layer_kinds_of(const Network& network) {
  std::vector<LayerKind> kinds;
  for (size_t i = 0; i < network.blocks.size(); ++i) {
    const auto* attention =
        std::get_if<Attention>(&network.blocks[i].front().branches.front().core);
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

}  // namespace

const Attention& first_attention(const Network& network) {
  return std::get<Attention>(network.blocks.at(0).at(0).branches.at(0).core);
}

bool has_experts(const Network& network) { return first_experts(network) != nullptr; }

const Experts* first_experts(const Network& network) {
  for (const Block& block : network.blocks) {
    if (const Experts* experts = experts_of(block)) return experts;
  }
  return nullptr;
}

const Experts* experts_of(const Block& block) {
  for (const Step& step : block) {
    for (const Branch& branch : step.branches) {
      if (const auto* experts = std::get_if<Experts>(&branch.core)) return experts;
    }
  }
  return nullptr;
}

ModelDescription describe(const Network& network) {
  ModelDescription model;
  model.passed = {{"hidden", network.width}};
  model.query_heads = network.query_heads;
  model.key_heads = network.key_heads;
  model.drops = drops(network);
  model.optional_prefix = network.optional_prefix;
  model.old_endings = network.old_endings;
  model.buffers = network.buffers;
  model.units.push_back(describe_embedding(network));
  for (size_t i = 0; i < network.blocks.size(); ++i) {
    model.units.push_back(describe_block(network, static_cast<int64_t>(i)));
  }
  std::visit([&](const auto& head) { describe_head(network, head, model); },
             network.head);
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
