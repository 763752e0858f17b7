#include "apps/passport/text_facts.h"

#include <utility>

#include "apps/passport/hard_texts.h"
#include "longhaul/base/error.h"
#include "longhaul/chat/chat_format.h"
#include "longhaul/data/store/self_test.h"

namespace longhaul::apps {
namespace {

/// The texts of a passport and of the self-test of a store together.
constexpr size_t kTexts = 1000;
/// The day that templates print.
constexpr const char* kDay = "2026-11-30";

/// Conversations in the form in which templates take them.
constexpr const char* kConversations = R"([
  {"messages": [{"role": "user", "content": "Who are you?"}], "tools": null},
  {"messages": [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": "  What is 2+2?\n"}], "tools": null},
  {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " b "},
                {"role": "user", "content": "Ünïcödé <|x|> {{ y }}"}], "tools": null},
  {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
   "tools": null},
  {"messages": [{"role": "user", "content": "How warm is it in Kiel?"}],
   "tools": [{"type": "function", "function": {"name": "warmth",
     "description": "Tells how warm it is.", "parameters": {"type": "object",
     "properties": {"place": {"type": "string", "description": "A town."}},
     "required": ["place"]}}}]}])";

Json rendered(const chat::ChatFormat& format, const OrderedJson& asked, bool prompt) {
  try {
    const chat::Conversation conversation(asked.at("messages"), asked.at("tools"), {},
                                          {});
    return format.render(conversation, prompt, chat::parse_day(kDay)).text;
  } catch (const InputError&) {
    return nullptr;  // some templates refuse some conversations
  }
}

}  // namespace

std::string without_directory(std::string text, const fs::path& dir) {
  for (const char* end : {"/", ": "}) {
    const std::string name = dir.string() + end;
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
      text.erase(at, name.size());
    }
  }
  return text;
}

OrderedJson tokenizer_facts(const tokenizer::Tokenizer& tokenizer) {
  const size_t own = data::make_self_test(tokenizer, {}).texts.size();
  const data::SelfTest test = data::make_self_test(tokenizer, hard_texts(kTexts - own));
  OrderedJson strings = OrderedJson::array();
  for (size_t i = 0; i < test.texts.size(); ++i) {
    strings.push_back({{"text", test.texts[i]}, {"ids", test.ids[i]}});
  }
  const std::string text = "Hello, world!";
  OrderedJson with_special = {{"text", text}, {"ids", nullptr}};
  try {
    with_special["ids"] = tokenizer.encode(text, /*add_special_tokens=*/true);
  } catch (const InputError&) {
    with_special = nullptr;  // the vocabulary lacks a character
  }
  const fs::path dir = tokenizer.files().front().parent_path();
  OrderedJson warnings = OrderedJson::array();
  for (const std::string& warning : tokenizer.warnings()) {
    warnings.push_back(without_directory(warning, dir));
  }
  return {{"fingerprint", tokenizer.fingerprint()},
          {"strings", std::move(strings)},
          {"with_special_tokens", std::move(with_special)},
          {"transformers_differs", std::move(warnings)}};
}

OrderedJson template_facts(const tokenizer::Tokenizer& tokenizer) {
  const chat::ChatFormat format(tokenizer.files().front().parent_path());
  OrderedJson list = OrderedJson::array();
  for (const OrderedJson& asked :
       parse_ordered_json(kConversations, "the conversations of a passport")) {
    const bool prompt = asked.at("messages").back().at("role") == "user";
    list.push_back({{"messages", asked.at("messages")},
                    {"tools", asked.at("tools")},
                    {"add_generation_prompt", prompt},
                    {"text", rendered(format, asked, prompt)}});
  }
  return {{"day", kDay}, {"rendered", std::move(list)}};
}

}  // namespace longhaul::apps
