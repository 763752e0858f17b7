#pragma once

#include "longhaul/families/layers/activation.h"
#include "longhaul/families/layers/embedding.h"

namespace longhaul::families {

/// BERT's head, which predicts the masked tokens and, with `next_sentence`, whether a
/// sequence's second text follows its first.
struct BertHead {
  Activation activation = Activation::GeluExact;
  double eps = 1e-12;
  bool next_sentence = true;
  bool operator==(const BertHead&) const = default;
};

/// Adds the head over x to the unit's description, and the terms of its loss to the
/// model's. The head is tied to the table of tokens and is computed for the masked tokens
/// only.
void add_head(UnitMaker& unit, const BertHead& head, const Feature& x,
              const Table& tokens, ModelDescription& model);

}  // namespace longhaul::families
