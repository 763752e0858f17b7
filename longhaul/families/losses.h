#pragma once

#include <string>

namespace longhaul {

/// A term of a model's loss: a sum, divided by the number of what it is summed over in
/// the global batch. The loss is the sum of all terms.
struct LossTerm {
  enum class Over {
    Targets,    ///< those that the data has for it
    Positions,  ///< all: an auxiliary loss, which no target gives
  };
  std::string name;
  Over over = Over::Targets;
  bool of_sequences = false;  ///< each has one target, not each position
};

/// Each position's next token.
inline constexpr const char* kNextToken = "next_token";
/// The tokens that were masked out, at their positions.
inline constexpr const char* kMaskedToken = "masked_token";
/// Once a sequence: 0 when its second text follows the first one, 1 when it is another's.
inline constexpr const char* kNextSentence = "next_sentence";

}  // namespace longhaul
