#include "longhaul/families/layers/bert_head.h"

namespace longhaul::families {
namespace {

/// The split of parameters that each rank holds whole and uses where features are split.
/// A rank's part of the gradient comes from its part of the vocabulary.
constexpr format::ShardSplit kInside = {format::ShardUnit::None, 0};

}  // namespace

void add_head(UnitMaker& unit, const BertHead& head, const Feature& x,
              const Table& tokens, ModelDescription& model) {
  const auto layer = [&](const std::string& name, int64_t out, const Feature& in) {
    const Feature y = unit.matrix(name + ".weight", out, in, kInside);
    unit.bias(name + ".bias", out, kInside);
    return y;
  };
  unit.enter();
  const Feature dense =
      layer("cls.predictions.transform.dense", x.width, unit.masked_rows(x));
  unit.tied_loss_head(tokens.rows, unit.layer_norm("cls.predictions.transform.LayerNorm",
                                                   unit.kept_gelu(dense), kInside));
  unit.bias("cls.predictions.bias", tokens.rows,
            format::ShardSplit{format::ShardUnit::Vocabulary, 0});
  model.losses = {{kMaskedToken}};
  if (head.next_sentence) {
    const Feature pooled =
        unit.tanh(layer("bert.pooler.dense", x.width, unit.first_rows(x)));
    unit.cross_entropy(layer("cls.seq_relationship", 2, pooled));
    model.losses.push_back({kNextSentence, LossTerm::Over::Targets, true});
  }
  model.tied = {tokens.name + ".weight", "cls.predictions.decoder.weight"};
}

}  // namespace longhaul::families
