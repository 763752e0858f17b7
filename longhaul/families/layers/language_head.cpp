#include "longhaul/families/layers/language_head.h"

namespace longhaul::families {

void add_head(UnitMaker& unit, const LanguageHead& head, const Feature& x,
              const Table& tokens, ModelDescription& model) {
  const Feature normed = add_norm(unit, head.norm, x);
  unit.enter();
  if (head.logits_cap != 0.0) unit.caps_logits();
  if (head.tied) {
    unit.tied_loss_head(tokens.rows, normed);
    model.tied = {tokens.name + ".weight", head.name + ".weight"};
  } else {
    unit.loss_head(head.name + ".weight", tokens.rows, normed);
  }
}

}  // namespace longhaul::families
