#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/families/llama/description.h"

namespace longhaul {
namespace {

using Unit = ShardUnit;

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

/// Parameters of one unit, and the multiplications with them.
class UnitMaker {
 public:
  UnitMaker(UnitKind kind, int64_t layer, double stddev) : stddev_(stddev) {
    unit_.kind = kind;
    unit_.layer = layer;
  }

  /// y = x W^T, W [out, in].
  void matrix(const std::string& name, int64_t out, int64_t in, ShardSplit split) {
    add(name, {out, in}, {Init::Kind::Normal, stddev_}, split);
    product(out, in);
  }
  void table(const std::string& name, int64_t rows, int64_t width) {
    add(name, {rows, width}, {Init::Kind::Normal, stddev_}, {{Unit::Vocabulary, 0}});
    unit_.work.lookups += static_cast<double>(width);
  }
  void norm(const std::string& name, int64_t width) {
    add(name, {width}, {Init::Kind::Ones, 0.0}, {});
  }
  void product(int64_t out, int64_t in) {
    unit_.work.products += static_cast<double>(out) * static_cast<double>(in);
  }
  /// Scores and values of so many features.
  void attention(int64_t width) {
    unit_.work.attention = 2.0 * static_cast<double>(width);
  }

  UnitDescription take() { return std::move(unit_); }

 private:
  void add(const std::string& name, std::vector<int64_t> shape, Init init,
           std::optional<ShardSplit> split) {
    unit_.parameters.push_back({name, std::move(shape), init, split});
  }

  double stddev_;
  UnitDescription unit_;
};

/// Split as in "Megatron-LM" (Shoeybi et al.): first projections by rows, second ones by
/// columns.
UnitDescription block(const LlamaSettings& s, int64_t layer) {
  UnitMaker unit(UnitKind::Block, layer, s.initializer_range);
  const std::string name = fmt::format("model.layers.{}.", layer);
  const int64_t query = s.num_attention_heads * s.head_dim;
  const int64_t key = s.num_key_value_heads * s.head_dim;
  unit.norm(name + "input_layernorm.weight", s.hidden_size);
  unit.matrix(name + "self_attn.q_proj.weight", query, s.hidden_size,
              {Unit::QueryHeads, 0});
  unit.matrix(name + "self_attn.k_proj.weight", key, s.hidden_size, {Unit::KeyHeads, 0});
  unit.matrix(name + "self_attn.v_proj.weight", key, s.hidden_size, {Unit::KeyHeads, 0});
  unit.matrix(name + "self_attn.o_proj.weight", s.hidden_size, query,
              {Unit::QueryHeads, 1});
  unit.attention(query);
  unit.norm(name + "post_attention_layernorm.weight", s.hidden_size);
  const int64_t inner = s.intermediate_size;
  unit.matrix(name + "mlp.gate_proj.weight", inner, s.hidden_size, {Unit::Elements, 0});
  unit.matrix(name + "mlp.up_proj.weight", inner, s.hidden_size, {Unit::Elements, 0});
  unit.matrix(name + "mlp.down_proj.weight", s.hidden_size, inner, {Unit::Elements, 1});
  return unit.take();
}

}  // namespace

ModelDescription describe_llama(const LlamaSettings& s, int64_t vocab_size) {
  ModelDescription model;
  model.features = s.hidden_size;
  model.query_heads = s.num_attention_heads;
  model.key_heads = s.num_key_value_heads;
  UnitMaker embedding(UnitKind::Embedding, 0, s.initializer_range);
  embedding.table(kEmbedding, vocab_size, s.hidden_size);
  model.units.push_back(embedding.take());
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) model.units.push_back(block(s, i));
  UnitMaker head(UnitKind::Head, 0, s.initializer_range);
  head.norm("model.norm.weight", s.hidden_size);
  if (s.tie_word_embeddings) {
    head.product(vocab_size, s.hidden_size);
    model.tied = TiedHead{kEmbedding, kHead};
  } else {
    head.matrix(kHead, vocab_size, s.hidden_size, {Unit::Vocabulary, 0});
  }
  model.units.push_back(head.take());
  return model;
}

}  // namespace longhaul
