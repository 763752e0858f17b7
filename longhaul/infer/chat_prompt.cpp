#include "longhaul/infer/chat_prompt.h"

#include <algorithm>

#include "longhaul/chat/chat_format.h"
#include "longhaul/infer/generate.h"

namespace longhaul::infer {
namespace {

OrderedJson said_by(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

chat::Rendered rendered(const chat::ChatFormat& format, const OrderedJson& messages,
                        bool add_generation_prompt) {
  return format.render({messages, {}, {}, {}}, add_generation_prompt, chat::today());
}

/// Returns the first control token that the template puts behind an answer.
std::optional<int64_t> end_of_turn(const chat::ChatFormat& format,
                                   const tokenizer::Tokenizer& tokenizer) {
  const chat::Rendered turns = rendered(
      format, OrderedJson::array({said_by("user", "a"), said_by("assistant", "b")}),
      false);
  size_t end = turns.text.size();
  for (const chat::DataSpan& span : turns.data) {
    if (span.message == 1) end = span.end;
  }
  for (const auto id : tokenizer.encode(turns.text.substr(end), false)) {
    const bool control =
        tokenizer.decode({id}, true).empty() && !tokenizer.decode({id}, false).empty();
    if (control) return id;
  }
  return {};
}

}  // namespace

ChatPrompt chat_prompt(const tokenizer::Tokenizer& tokenizer, const std::string& message,
                       const std::string& system, int64_t vocab_size) {
  const chat::ChatFormat format(tokenizer.files().front().parent_path());
  OrderedJson messages = OrderedJson::array();
  if (!system.empty()) messages.push_back(said_by("system", system));
  messages.push_back(said_by("user", message));
  ChatPrompt prompt;
  prompt.text = rendered(format, messages, true).text;
  prompt.ids =
      encode_prompt(tokenizer, prompt.text, vocab_size, /*add_special_tokens=*/false);
  prompt.end_of_turn = end_of_turn(format, tokenizer);
  return prompt;
}

}  // namespace longhaul::infer
