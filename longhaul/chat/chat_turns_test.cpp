#include "longhaul/chat/chat_turns.h"

#include <gtest/gtest.h>

#include <string>

#include "longhaul/base/error.h"
#include "tests/support/message_of.h"

namespace longhaul::chat {
namespace {

/// Returns one token for each "<...>" of a text, which is a control token, and for each
/// other byte.
std::vector<TextToken> tokens_of(const std::string& text) {
  std::vector<TextToken> tokens;
  for (size_t i = 0; i < text.size(); i = tokens.back().end) {
    const size_t close = text[i] == '<' ? text.find('>', i) : std::string::npos;
    const bool control = close != std::string::npos;
    tokens.push_back({i, control ? close + 1 : i + 1, control});
  }
  return tokens;
}

/// Returns the texts of the assistant's turns.
std::vector<std::string> turns_of(const std::string& source, const char* messages,
                                  Targets targets = Targets::Assistant) {
  const ChatFormat format(source, {{"bos_token", "<s>"}});
  const Conversation conversation(OrderedJson::parse(messages), nullptr, nullptr,
                                  nullptr);
  const ChatTemplate& chat_template = format.template_of(conversation);
  const Day day;
  const Rendered whole = chat_template.render(conversation, conversation.size(), false,
                                              format.special_tokens(), day);
  std::vector<std::string> texts;
  for (const TextSpan& span : find_turns(format, chat_template, conversation, whole,
                                         tokens_of(whole.text), targets, day)
                                  .spans) {
    texts.push_back(whole.text.substr(span.begin, span.end - span.begin));
  }
  return texts;
}

std::string refused(const std::string& source, const char* messages) {
  return message_of<InputError>([&] { turns_of(source, messages); });
}

constexpr const char* kTalk = R"([{"role": "assistant", "content": "A"},
    {"role": "user", "content": "Q"}, {"role": "assistant", "content": "B"}])";
constexpr const char* kMessage = "<{{ m.role }}>{{ m.content }}<end>";
constexpr const char* kAsked = "{% if add_generation_prompt %}<assistant>{% endif %}";

std::string looped(const std::string& body) {
  return "{% for m in messages %}" + body + "{% endfor %}" + kAsked;
}

TEST(ChatTurns, BeginBehindThePromptWhereTheAssistantOpensTheChat) {
  const std::vector<std::string> expected = {"A<end>", "B<end>"};
  EXPECT_EQ(turns_of(looped(kMessage), kTalk), expected);
  EXPECT_EQ(turns_of("{{ bos_token }}" + looped(kMessage), kTalk), expected);
}

TEST(ChatTurns, AreRefusedWhereADefaultOfTheTemplateWouldBeLearned) {
  const auto first = [](const char* words) {
    return looped(std::string("{% if loop.first %}") + words + "{% endif %}" + kMessage);
  };
  for (const std::string& source :
       {first("<system>Be kind.<end>"), first("<s>"), first("Be kind."),
        std::string(
            "{% for m in messages %}Be kind. {{ m.content }}<end>{% endfor %}")}) {
    EXPECT_NE(refused(source, kTalk).find("the beginning of message 1 is not known"),
              std::string::npos)
        << source << ": " << refused(source, kTalk);
  }
  // The prompt's first token stands in front of the default too.
  const std::string shared =
      "{% for m in messages %}{% if loop.first %}<start>system: kind<end>{% endif %}"
      "<start>{{ m.role }}:{{ m.content }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<start>assistant:{% endif %}";
  EXPECT_NE(refused(shared, kTalk).find("message 1 is not known"), std::string::npos);
  // Behind the system's message alone this template writes no generation prompt.
  const std::string last =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% if loop.last and "
      "m.role == 'user' and add_generation_prompt %}<assistant>{% endif %}{% endfor %}";
  const char* system = R"([{"role": "system", "content": "S"},
      {"role": "assistant", "content": "A"}])";
  EXPECT_NE(refused(last, system).find("message 2 is not known"), std::string::npos);
}

TEST(ChatTurns, SayWhatToDoWhereTheTemplateRefusesWhatStandsInFront) {
  const std::string message = refused("{{ messages[0].role }}" + looped(kMessage), kTalk);
  EXPECT_NE(message.find("message 1 is the assistant's, and its beginning cannot be "
                         "found"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("begin chats with the user"), std::string::npos) << message;
}

}  // namespace
}  // namespace longhaul::chat
