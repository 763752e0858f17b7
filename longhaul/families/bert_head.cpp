#include "longhaul/families/bert_head.h"

#include "longhaul/families/unit_maker.h"

namespace longhaul::families {
namespace {

/// The split of parameters that each rank holds whole and uses where features are split.
/// A rank's part of the gradient comes from its part of the vocabulary.
constexpr format::ShardSplit kInside = {format::ShardUnit::None, 0};

}  // namespace

void describe_head(const Network& network, const BertHead& head,
                   ModelDescription& model) {
  UnitMaker unit(UnitKind::Head, 0, network.stddev);
  const auto layer = [&](const std::string& name, int64_t out, const Feature& in) {
    const Feature y = unit.matrix(name + ".weight", out, in, kInside);
    unit.bias(name + ".bias", out, kInside);
    return y;
  };
  const int64_t vocabulary = network.embedding.tokens.rows;
  const Feature x = unit.input(network.width);
  unit.enter();
  const Feature dense =
      layer("cls.predictions.transform.dense", network.width, unit.masked_rows(x));
  unit.tied_loss_head(vocabulary, unit.layer_norm("cls.predictions.transform.LayerNorm",
                                                  unit.kept_gelu(dense), kInside));
  unit.bias("cls.predictions.bias", vocabulary,
            format::ShardSplit{format::ShardUnit::Vocabulary, 0});
  model.losses = {{kMaskedToken}};
  if (head.next_sentence) {
    const Feature pooled =
        unit.tanh(layer("bert.pooler.dense", network.width, unit.first_rows(x)));
    unit.cross_entropy(layer("cls.seq_relationship", 2, pooled));
    model.losses.push_back({kNextSentence, LossTerm::Over::Targets, true});
  }
  model.units.push_back(unit.take());
  model.tied = {network.embedding.tokens.name + ".weight",
                "cls.predictions.decoder.weight"};
}

}  // namespace longhaul::families
