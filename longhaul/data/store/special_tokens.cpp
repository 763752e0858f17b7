#include "longhaul/data/store/special_tokens.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr std::array<std::pair<SpecialPolicy, std::string_view>, 6> kNames = {{
    {SpecialPolicy::TokenizerAndEos, "tokenizer+eos"},
    {SpecialPolicy::Tokenizer, "tokenizer"},
    {SpecialPolicy::Bos, "bos"},
    {SpecialPolicy::Eos, "eos"},
    {SpecialPolicy::Both, "both"},
    {SpecialPolicy::None, "none"},
}};

tokenizer::TokenId required(std::optional<tokenizer::TokenId> id, std::string_view token,
                            SpecialPolicy policy) {
  if (id) return *id;
  fail_input(
      "data",
      "the tokenizer names no {} token, which '--special-tokens {}' puts around each "
      "document; name it in tokenizer_config.json, or choose '--special-tokens {}'",
      token, policy_name(policy),
      policy == SpecialPolicy::TokenizerAndEos ? "tokenizer" : "none");
}

std::string describe(const tokenizer::Tokenizer& tokenizer,
                     const std::vector<tokenizer::TokenId>& ids) {
  if (ids.empty()) return "nothing";
  std::string text;
  for (const tokenizer::TokenId id : ids) {
    if (!text.empty()) text += " ";
    text += fmt::format("{} ({})", tokenizer.id_to_token(id).value_or("?"), id);
  }
  return text;
}

}  // namespace

std::string_view policy_name(SpecialPolicy policy) {
  for (const auto& [value, name] : kNames) {
    if (value == policy) return name;
  }
  return "unknown";
}

std::optional<SpecialPolicy> policy_from_name(std::string_view wanted) {
  for (const auto& [value, name] : kNames) {
    if (name == wanted) return value;
  }
  return std::nullopt;
}

SpecialTokens resolve_special_tokens(const tokenizer::Tokenizer& tokenizer,
                                     SpecialPolicy policy) {
  SpecialTokens special;
  const bool own =
      policy == SpecialPolicy::TokenizerAndEos || policy == SpecialPolicy::Tokenizer;
  if (own) {
    special.before = tokenizer.special_prefix();
    special.after = tokenizer.special_suffix();
  }
  if (policy == SpecialPolicy::Bos || policy == SpecialPolicy::Both) {
    special.before = {required(tokenizer.bos_id(), "BOS", policy)};
  }
  if (policy == SpecialPolicy::Eos || policy == SpecialPolicy::Both) {
    special.after = {required(tokenizer.eos_id(), "EOS", policy)};
  }
  if (policy == SpecialPolicy::TokenizerAndEos) {
    const tokenizer::TokenId eos = required(tokenizer.eos_id(), "EOS", policy);
    if (special.after.empty() || special.after.back() != eos)
      special.after.push_back(eos);
  }
  special.description = fmt::format(
      "{}: before each document {}, after it {}", policy_name(policy),
      describe(tokenizer, special.before), describe(tokenizer, special.after));
  return special;
}

}  // namespace longhaul::data
