#pragma once

#include <map>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/chat/chat_template.h"

namespace longhaul::chat {

/// How a model writes conversations: its templates and the special tokens that they name.
/// Immutable; any thread may use it.
class ChatFormat {
 public:
  /// Reads what stands beside a tokenizer's file in `dir`, as transformers does:
  /// chat_template.jinja and additional_chat_templates/NAME.jinja, else the
  /// `chat_template` of tokenizer_config.json, a text or a list of named texts. Throws
  /// InputError where there is none, or one that cannot be read.
  explicit ChatFormat(const fs::path& dir);
  /// Makes a format of one template.
  ChatFormat(const std::string& source,
             std::map<std::string, std::string> special_tokens);

  /// Returns the template of a conversation: "tool_use" for one with tools, where there
  /// is such a template.
  const ChatTemplate& template_of(const Conversation& conversation) const;
  /// Writes a conversation by its template, as ChatTemplate::render() does.
  Rendered render(const Conversation& conversation, bool add_generation_prompt,
                  const Day& day) const;
  const std::map<std::string, std::string>& special_tokens() const {
    return special_tokens_;
  }
  /// Returns a hash of templates and special tokens.
  const std::string& hash() const { return hash_; }
  /// Returns whether any of the templates prints the day.
  bool prints_day() const;

 private:
  void add(const std::string& name, const std::string& place, const std::string& source);

  std::map<std::string, ChatTemplate> templates_;
  std::map<std::string, std::string> special_tokens_;
  std::string hash_;
};

}  // namespace longhaul::chat
