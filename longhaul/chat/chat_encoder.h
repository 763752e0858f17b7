#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/chat/chat_format.h"
#include "longhaul/chat/chat_record.h"
#include "longhaul/chat/chat_turns.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::chat {

/// What is counted while conversations become tokens. None of it is an error.
enum class Finding : uint8_t {
  Chats,             ///< records of one conversation
  Pairs,             ///< records of two sides
  ControlInMessage,  ///< control tokens that a message spells
  NotPrinted,        ///< contents, reasonings or tool calls that are not printed
  SilentTurns,       ///< turns of which no token is a target
  UnendedTurns,      ///< turns behind which no control token stands
  AcrossEdge,        ///< tokens that lie across the edge of a turn
  PromptCut,         ///< prompts that an answer continues in another way
  Count,
};
inline constexpr size_t kFindings = static_cast<size_t>(Finding::Count);
/// Returns the name of a finding in store.json, such as "control_tokens_in_messages".
std::string_view finding_name(Finding finding);
/// Returns what a finding means, for people.
std::string_view finding_words(Finding finding);
/// Returns what the finding of this name means; the name where it is not known.
std::string_view finding_words_of(std::string_view name);

using Findings = std::array<int64_t, kFindings>;

/// A conversation as tokens.
struct EncodedChat {
  std::vector<tokenizer::TokenId> tokens;
  std::vector<uint8_t> is_target;  ///< one 0 or 1 per token
  uint64_t text_bytes = 0;
};

/// The tokens of a record: one conversation, or the chosen and the rejected one.
struct EncodedRecord {
  std::vector<EncodedChat> sides;
  Findings findings{};
  std::string text;  ///< the first conversation's text
};

/// Makes tokens of conversations. Immutable; any thread may call it. Tokenizer and format
/// must outlive it.
class ChatEncoder {
 public:
  ChatEncoder(const tokenizer::Tokenizer& tokenizer, const ChatFormat& format,
              Targets targets, const Day& day);
  ~ChatEncoder();

  /// Throws InputError for a record that cannot be learned from, which says why.
  EncodedRecord encode(const ChatRecord& record) const;

 private:
  class Work;
  const tokenizer::Tokenizer& tokenizer_;
  const ChatFormat& format_;
  Targets targets_;
  Day day_;
  std::vector<uint8_t> is_control_;  // by id
};

}  // namespace longhaul::chat
