#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "longhaul/base/json.h"

namespace longhaul::chat {

/// A record of training data in one form, whatever form the file has.
struct ChatRecord {
  enum class Kind {
    Chat,        ///< `prompt` is the whole conversation
    Completion,  ///< `prompt`, then `chosen`
    Pair,        ///< `prompt`, then either `chosen` or `rejected`
  };
  Kind kind = Kind::Chat;
  /// True where the texts are plain, which no template changes. Then the three are
  /// strings, else lists of messages.
  bool plain = false;
  OrderedJson prompt;
  OrderedJson chosen;
  OrderedJson rejected;
  OrderedJson tools;      ///< null: none
  OrderedJson documents;  ///< null: none
  OrderedJson variables;  ///< of `chat_template_kwargs`; null: none

  /// Returns a text that is equal for equal records only.
  std::string text() const;
};

/// Reads a record, a JSON object with `messages`, `conversations` (ShareGPT),
/// `instruction` and `output` (Alpaca), `prompt` and `completion`, or `chosen` and
/// `rejected` with or without `prompt`. Throws InputError, which says what is wrong.
/// Pure; any thread may call it.
ChatRecord parse_chat_record(std::string_view json);
/// Reads a record whose JSON is parsed, as parse_chat_record does.
ChatRecord chat_record_of(const OrderedJson& record);

}  // namespace longhaul::chat
