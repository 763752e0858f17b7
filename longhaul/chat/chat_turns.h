#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/chat/chat_format.h"
#include "longhaul/chat/chat_template.h"

namespace longhaul::chat {

/// Which tokens of a conversation a model learns to write.
enum class Targets : uint8_t {
  Assistant,  ///< the assistant's turns
  Last,       ///< the last of these turns
  All,        ///< all tokens
};

/// A token of a rendered text.
struct TextToken {
  size_t begin = 0;  ///< bytes of the text
  size_t end = 0;
  bool is_control = false;
};

/// What a model writes of a rendered conversation.
struct Turns {
  std::vector<TextSpan> spans;
  int64_t silent = 0;   ///< turns of which no character is a target
  int64_t unended = 0;  ///< turns behind which no control token stands
};

/// Finds the assistant's turns, all or the last, in `whole`, which is the template's text
/// of the whole conversation. With {% generation %} these are the template's own. Without
/// it a turn begins where the text leaves what the generation prompt would have written,
/// and ends with the first control token behind its last character from the data. Throws
/// InputError where there is no such turn, where a turn's beginning is not known, and
/// where another message's text stands inside of a turn.
Turns find_turns(const ChatFormat& format, const ChatTemplate& chat_template,
                 const Conversation& conversation, const Rendered& whole,
                 const std::vector<TextToken>& tokens, Targets targets, const Day& day);

}  // namespace longhaul::chat
