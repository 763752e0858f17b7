#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// The rule for special tokens around each document.
enum class SpecialPolicy {
  /// The tokenizer's own rule, and EOS at the end unless the rule adds EOS.
  TokenizerAndEos,
  Tokenizer,  ///< the tokenizer's own rule
  Bos,
  Eos,
  Both,  ///< BOS before and EOS after
  None,
};
/// Returns "tokenizer+eos", "tokenizer", "bos", "eos", "both" or "none".
std::string_view policy_name(SpecialPolicy policy);
std::optional<SpecialPolicy> policy_from_name(std::string_view name);

/// The ids that a policy puts around each document.
struct SpecialTokens {
  std::vector<tokenizer::TokenId> before;
  std::vector<tokenizer::TokenId> after;
  std::string description;  ///< the policy's name and the added tokens, for people
};

/// Finds the ids of a policy. Throws InputError when the policy needs a token that the
/// tokenizer does not name.
SpecialTokens resolve_special_tokens(const tokenizer::Tokenizer& tokenizer,
                                     SpecialPolicy policy);

}  // namespace longhaul::data
