#pragma once

#include <cstdint>
#include <string>

namespace longhaul {

/// A term of a model's loss: a sum over targets or positions, divided by their number in
/// the global batch. The loss is the sum of all terms that are no figures.
struct LossTerm {
  enum class Over {
    Targets,  ///< the targets that the data has for the term
    /// All positions that are not padding: an auxiliary loss, which has no targets.
    Positions,
    /// The targets of the first term: a figure that is reported and is no part of the
    /// loss.
    Figure,
  };
  std::string name;
  Over over = Over::Targets;
  bool of_sequences = false;  ///< each sequence has one target, instead of each position
  int64_t layers = 1;         ///< layers in each of which every position adds to the term
};

/// The term for each position's next token.
inline constexpr const char* kNextToken = "next_token";
/// The term for the tokens that were masked out, at their positions.
inline constexpr const char* kMaskedToken = "masked_token";
/// The term with one target per sequence: 0 if its second text follows the first, 1 if
/// the second text comes from elsewhere.
inline constexpr const char* kNextSentence = "next_sentence";

/// The term for each pair of a chosen and a rejected side, whose targets are the pairs.
inline constexpr const char* kPreference = "preference";
/// The term for each next token of the chosen sides, prompts included (ORPO).
inline constexpr const char* kChosenToken = "chosen_token";

/// The term that keeps the loads of experts alike, and the term that keeps the router's
/// logits small (nn/experts.h). A model with experts has both terms.
inline constexpr const char* kRouterBalance = "router_balance";
inline constexpr const char* kRouterZ = "router_z";

}  // namespace longhaul
