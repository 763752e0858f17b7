#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::infer {

/// A user's message as a model gets it.
struct ChatPrompt {
  std::string text;  ///< the template's text, up to the place where the answer begins
  std::vector<int64_t> ids;
  /// The control token that the template puts behind an answer; empty: it puts none.
  std::optional<int64_t> end_of_turn;
};

/// Writes a message by the chat template beside the tokenizer's file, behind a system
/// message unless `system` is empty. The template prints the day of now, and writes all
/// special tokens itself. Throws InputError where there is no template, where it refuses
/// the messages, and for ids past `vocab_size`.
ChatPrompt chat_prompt(const tokenizer::Tokenizer& tokenizer, const std::string& message,
                       const std::string& system, int64_t vocab_size);

}  // namespace longhaul::infer
