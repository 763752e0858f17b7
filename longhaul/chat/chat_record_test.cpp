#include "longhaul/chat/chat_record.h"

#include <gtest/gtest.h>

#include <string>

#include "longhaul/base/error.h"
#include "tests/support/message_of.h"

namespace longhaul::chat {
namespace {

std::string prompt_of(const char* json) { return parse_chat_record(json).prompt.dump(); }

TEST(ChatRecord, TakesMessagesAsTheyAre) {
  const ChatRecord record = parse_chat_record(
      R"({"id": 7, "messages": [{"role": "user", "content": "a", "extra": 1}],
          "tools": "[{\"name\": \"t\"}]", "chat_template_kwargs": {"x": true}})");
  EXPECT_EQ(record.prompt.dump(), R"([{"role":"user","content":"a","extra":1}])");
  EXPECT_EQ(record.tools.dump(), R"([{"name":"t"}])");
  EXPECT_EQ(record.variables.dump(), R"({"x":true})");
  EXPECT_EQ(record.kind, ChatRecord::Kind::Chat);
}

TEST(ChatRecord, MakesMessagesOfShareGptAndAlpaca) {
  EXPECT_EQ(
      prompt_of(R"({"system": "s", "conversations": [{"from": "human", "value": "a"},
                    {"from": "gpt", "value": "b"}, {"from": "tool", "value": "c"}]})"),
      R"([{"role":"system","content":"s"},{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"b"},{"role":"tool","content":"c"}])");
  EXPECT_EQ(
      prompt_of(R"({"instruction": "do", "input": "it", "output": "done"})"),
      R"([{"role":"user","content":"do\nit"},{"role":"assistant","content":"done"}])");
  EXPECT_EQ(prompt_of(R"({"instruction": "do", "input": "", "output": "done"})"),
            R"([{"role":"user","content":"do"},{"role":"assistant","content":"done"}])");
}

TEST(ChatRecord, FindsThePromptThatBothSidesOfAPairBeginWith) {
  const ChatRecord messages = parse_chat_record(
      R"({"prompt": "q", "chosen": [{"role": "user", "content": "q"},
          {"role": "assistant", "content": "good"}],
          "rejected": [{"role": "user", "content": "q"},
          {"role": "assistant", "content": "bad"}]})");
  EXPECT_EQ(messages.prompt.dump(), R"([{"role":"user","content":"q"}])");
  EXPECT_EQ(messages.chosen.dump(), R"([{"role":"assistant","content":"good"}])");
  const ChatRecord plain = parse_chat_record(
      R"({"chosen": "The sky is blue", "rejected": "The sky is grün"})");
  EXPECT_TRUE(plain.plain);
  EXPECT_EQ(plain.prompt, "The sky is");
  EXPECT_EQ(plain.rejected, " grün");
  // Half of a character is in neither part.
  const ChatRecord umlauts = parse_chat_record(R"({"chosen": "xä", "rejected": "xö"})");
  EXPECT_EQ(umlauts.prompt, "x");
}

TEST(ChatRecord, SaysWhatIsWrong) {
  const auto refused = [](const char* json, const char* words) {
    const std::string message = message_of<InputError>([&] { parse_chat_record(json); });
    EXPECT_NE(message.find(words), std::string::npos) << json << ": " << message;
  };
  refused("[1]", "no JSON object");
  refused("{", "the record");
  refused(R"({"text": "a"})", "its fields: 'text'");
  refused(R"({"messages": []})", "empty one");
  refused(R"({"messages": [{"content": "a"}]})", "no role");
  refused(R"({"messages": [{"role": "user", "content": 3}]})", "neither text nor a list");
  refused(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", "image");
  for (const char* field :
       {R"("weight": 0)", R"("train": false)", R"("training": false)"}) {
    const std::string rest = std::string(field) + "}]}";
    refused((R"({"messages": [{"role": "assistant", "content": "a", )" + rest).c_str(),
            "is not read");
    refused((R"({"conversations": [{"from": "gpt", "value": "a", )" + rest).c_str(),
            "is not read");
  }
  EXPECT_NO_THROW(parse_chat_record(
      R"({"messages": [{"role": "user", "content": "q", "train": false},
          {"role": "assistant", "content": "a", "weight": 1,
          "train": true}]})"));
  refused(R"({"conversations": [{"from": "martian", "value": "a"}]})", "martian");
  refused(R"({"chosen": "a", "rejected": "a"})", "are equal");
  refused(R"({"chosen": "a", "rejected": "b"})", "begin with different");
  refused(R"({"prompt": [{"role": "user", "content": "q"}],
              "chosen": [{"role": "user", "content": "q"},
                         {"role": "assistant", "content": "a"}],
              "rejected": [{"role": "user", "content": "q"},
                           {"role": "assistant", "content": "b"}]})",
          "leave 'prompt' out");
  refused(R"({"prompt": "q", "chosen": [{"role": "assistant", "content": "a"}],
              "rejected": [{"role": "assistant", "content": "b"}]})",
          "write 'prompt' as a list of messages");
  refused(R"({"prompt": "p", "completion": [{"role": "assistant", "content": "a"}]})",
          "must all be texts");
  refused(R"({"instruction": "a", "output": "b", "history": [["c", "d"]]})", "history");
}

TEST(ChatRecord, HasEqualTextsForEqualRecordsOnly) {
  const auto text = [](const char* json) { return parse_chat_record(json).text(); };
  EXPECT_EQ(text(R"({"id": 1, "messages": [{"role": "user", "content": "a"}]})"),
            text(R"({"messages": [{"role": "user", "content": "a"}], "id": 2})"));
  EXPECT_NE(text(R"({"messages": [{"role": "user", "content": "a"}]})"),
            text(R"({"messages": [{"role": "user", "content": "b"}]})"));
  EXPECT_NE(text(R"({"messages": [{"role": "user", "content": "a"}]})"),
            text(R"({"messages": [{"role": "user", "content": "a"}], "tools": []})"));
}

}  // namespace
}  // namespace longhaul::chat
