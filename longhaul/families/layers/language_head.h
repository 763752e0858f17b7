#pragma once

#include <string>

#include "longhaul/families/layers/embedding.h"

namespace longhaul::families {

/// The head that predicts each position's next token:
/// x = projection(norm(x)) / logits_divisor, and logits = cap * tanh(x / cap) if there is
/// a cap.
struct LanguageHead {
  Norm norm;
  std::string name;   ///< name of the projection
  bool tied = false;  ///< the projection is the embedding's table of tokens
  double logits_divisor = 1.0;
  double logits_cap = 0.0;  ///< 0: none
  bool operator==(const LanguageHead&) const = default;
};

/// Adds the head over x to the description of the unit. For a tied head, the description
/// of the model also gets the names of the two tables that are one (`model.tied`).
void add_head(UnitMaker& unit, const LanguageHead& head, const Feature& x,
              const Table& tokens, ModelDescription& model);

}  // namespace longhaul::families
