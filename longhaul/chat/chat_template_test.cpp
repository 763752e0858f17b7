#include "longhaul/chat/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/chat/chat_format.h"
#include "tests/support/message_of.h"

namespace longhaul::chat {
namespace {

const std::map<std::string, std::string> kSpecial = {{"bos_token", "<s>"},
                                                     {"eos_token", "</s>"}};

Conversation conversation_of(const char* messages, const char* tools = "null") {
  return {OrderedJson::parse(messages), OrderedJson::parse(tools), nullptr, nullptr};
}

constexpr const char* kHello =
    R"([{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "Hi"}])";

Rendered render(const std::string& source, const Conversation& conversation,
                bool add_generation_prompt = false) {
  return ChatTemplate(source, "a template")
      .render(conversation, conversation.size(), add_generation_prompt, kSpecial,
              {2026, 3, 1});
}

std::string text_of(const std::string& source, const char* messages = kHello,
                    const char* tools = "null") {
  return render(source, conversation_of(messages, tools)).text;
}

TEST(ChatTemplate, MarksWhichCharactersComeFromWhichMessage) {
  const Rendered result =
      render("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }};{% endfor %}",
             conversation_of(kHello));
  ASSERT_EQ(result.text, "<user>Grüße;<assistant>Hi;");
  std::vector<std::string> of_content;
  for (const DataSpan& span : result.data) {
    if (span.field != Field::Content) continue;
    of_content.push_back(std::to_string(span.message) + " " +
                         result.text.substr(span.begin, span.end - span.begin));
  }
  EXPECT_EQ(of_content, (std::vector<std::string>{"0 Grüße", "1 Hi"}));
}

TEST(ChatTemplate, KeepsMarksThroughSplitReplaceSliceAndJson) {
  const char* messages = R"([{"role": "assistant", "content": "a</think>b c"}])";
  for (const char* expression :
       {"('<p>' ~ m.content).split('</think>')[-1]", "m.content.replace('a', 'x')",
        "m.content[2:]", "m.content | tojson", "[m.content] | join('-')"}) {
    const Rendered result =
        render(std::string("{% set m = messages[0] %}<{{ ") + expression + " }}>",
               conversation_of(messages));
    ASSERT_FALSE(result.data.empty()) << expression << ": " << result.text;
    EXPECT_EQ(result.data.back().message, 0) << expression;
    EXPECT_GE(result.data.back().end, result.text.size() - 2) << expression;
  }
}

TEST(ChatTemplate, ReportsWhatStandsInGenerationAndKeepsItsVariablesInside) {
  const Rendered result = render(
      "{% set x = 'out' %}{% for m in messages %}{{ m.role }}:"
      "{%- if m.role == 'assistant' %}{% generation %}{% set x = 'in' %}{{ m.content }}"
      "</s>{% endgeneration %}{% endif %}\n{% endfor %}{{ x }} {# {% generation %} #}",
      conversation_of(kHello));
  EXPECT_EQ(result.text, "user:assistant:Hi</s>out ");
  EXPECT_EQ(result.generated, (std::vector<TextSpan>{{15, 21}}));
}

TEST(ChatTemplate, PrintsAsPythonDoes) {
  EXPECT_EQ(text_of("{{ none }} {{ true }} {{ 2.50 }} {{ [1, 'a', "
                    "none] }} {{ {'k': \"it's\"} }} {{ nothing }}|"),
            "None True 2.5 [1, 'a', None] {'k': \"it's\"} |");
  EXPECT_EQ(text_of("{{ messages[0].content | length }}{{ messages[0].content[2] }}"),
            "5ü");
  EXPECT_EQ(text_of("{{ '\u00a0 x \u3000' | trim }}{{ 'Éa' | lower }}"), "xéa");
  EXPECT_EQ(text_of("{{ 7 % -3 }} {{ 7 / 2 }} {{ 'a' ~ none ~ 1 }}"), "-2 3.5 aNone1");
  EXPECT_EQ(text_of("{{ 9223372036854775807 }} {{ -2.9 | int }}"),
            "9223372036854775807 -2");
  EXPECT_EQ(text_of("{{ tools | tojson }}", kHello,
                    R"([{"b": [1.0, 1e-7, "ü\"<>"], "a": {}}])"),
            R"([{"b": [1.0, 1e-07, "ü\"<>"], "a": {}}])");
}

TEST(ChatTemplate, ForgetsAtTheEndOfARoundWhatTheRoundHasSet) {
  EXPECT_EQ(text_of("{% for m in messages %}{% if loop.first %}{% set x = 1 %}{% endif %}"
                    "{{ x }},{% endfor %}{{ x }}"),
            "1,,");
  EXPECT_EQ(text_of("{% for i in range(5) %}{% if i == 2 %}last{% break %}{% endif %}"
                    "{{ i }}{% endfor %}"),
            "01last");
}

TEST(ChatTemplate, DropsNullsOfMessagesAndKnowsReasoningByEachName) {
  const char* messages =
      R"([{"role": "assistant", "content": null, "tool_calls": null, "thinking": "t"}])";
  EXPECT_EQ(text_of("{% set m = messages[0] %}{{ 'content' in m }} {{ m.tool_calls is "
                    "defined }} {{ m.reasoning_content }}",
                    messages),
            "False False t");
}

TEST(ChatTemplate, PrintsTheDayThatItIsGiven) {
  const std::string source = "{{ strftime_now('%d %b %Y, %A, %j') }}";
  EXPECT_EQ(text_of(source), "01 Mar 2026, Sunday, 060");
  EXPECT_TRUE(ChatTemplate(source, "").prints_day());
  EXPECT_FALSE(ChatTemplate("{{ 'strftime_now' }}", "").prints_day());
  EXPECT_THROW(parse_day("2026-02-30"), InputError);
  EXPECT_THROW(parse_day("2026-2-3"), InputError);
  EXPECT_EQ(day_text(parse_day("2024-02-29")), "2024-02-29");
}

TEST(ChatTemplate, SaysWhyATemplateRefusesAConversation) {
  const std::string message = message_of<InputError>([] {
    text_of("{% for m in messages %}\n{{ raise_exception('no ' + m.role) }}{% endfor %}");
  });
  EXPECT_NE(message.find("no user"), std::string::npos) << message;
  EXPECT_NE(message.find("line 2"), std::string::npos) << message;
}

TEST(ChatTemplate, RefusesWhatJinjaRefuses) {
  for (const char* source :
       {"{{ nothing.at_all }}", "{{ 'a' + 1 }}", "{{ none + 'a' }}", "{{ 1 / 0 }}",
        "{{ messages.append(1) }}", "{{ messages[0].pop('role') }}",
        "{% set messages[0].role = 'x' %}", "{{ [1, 'a'] | sort }}",
        "{{ x | unknown }}"}) {
    EXPECT_THROW(text_of(source), InputError) << source;
  }
  for (const char* source : {"{{ 'open }}", "{% if %}", "{% for x in y %}", "{{ (1 }}",
                             "{% unknown %}", "{% endgeneration %}", "{{ '\\ud800' }}"}) {
    EXPECT_THROW(ChatTemplate(source, "t"), InputError) << source;
  }
}

/// Returns the message about a template that goes beyond a limit.
std::string refused(const std::string& source) {
  return message_of<InputError>([&] { text_of(source); });
}

TEST(ChatTemplate, RefusesWholeNumbersBeyondItsOwn) {
  EXPECT_NE(refused("{{ (5000000000000000000 * 2.0) | int }}").find("beyond 9e18"),
            std::string::npos);
}

TEST(ChatTemplate, EndsWithoutEndNoTemplate) {
  const auto start = std::chrono::steady_clock::now();
  const std::string many = "{% for a in range(99999) %}";
  const std::vector<std::string> endless = {
      many + many + "{% endfor %}{% endfor %}",
      many + "{{ 'x' * 1000000 }}{% endfor %}",
      "{{ 'x' * 1000000000000 }}",
      "{{ 'x' * 9223372036854775807 }}",
      "{% set n = namespace(x='xxxxxxxx') %}" + many +
          "{% set n.x = n.x ~ n.x %}{% endfor %}",
      "{% set n = namespace(x=[1]) %}" + many + "{% set n.x = n.x + n.x %}{% endfor %}",
      "{% set n = namespace(x=[1]) %}" + many + "{% set n.x = [n.x] %}{% endfor %}",
      "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
      "{% endfor %}{{ n.x }}",
      "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, "
      "n.x] "
      "%}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}",
      "{% set a = 'a' * 3000000 %}{{ (a ~ 'b') in a }}" + many +
          "{{ (a ~ 'b') in (a ~ a) }}{% endfor %}",
  };
  for (const std::string& source : endless) {
    EXPECT_NE(refused(source).find("needs more than"), std::string::npos)
        << source << ": " << refused(source);
  }
  EXPECT_NE(refused("{{ range(10 ** 9) }}"), "");
  EXPECT_NE(refused("{{ range(1000000000) }}").find("100,000"), std::string::npos);
  EXPECT_NE(refused("{% set n = namespace() %}{% set n.x = n %}"), "");
  EXPECT_NE(refused("{{ messages | tojson(indent=1000000000) }}"), "");
  // A bound on machines that are slow and shared; without limits this takes hours.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(2));
}

TEST(ChatTemplate, RefusesTemplatesThatWouldOverflowTheParser) {
  const auto repeated = [](const std::string& part, size_t times) {
    std::string all;
    for (size_t i = 0; i < times; ++i) all += part;
    return all;
  };
  const std::vector<std::string> deep = {
      "{{ " + repeated("(", 100000) + " }}",
      "{{ " + repeated("[", 100000),
      "{{ " + repeated("not ", 100000) + "1 }}",
      "{{ " + repeated("-", 100000) + "1 }}",
      "{{ 1" + repeated("+1", 100000) + " }}",
      "{{ a" + repeated(".a", 100000) + " }}",
      repeated("{% if 1 %}", 50000) + repeated("{% endif %}", 50000),
      "{% if 1 %}" + repeated("{% elif 1 %}", 50000) + "{% endif %}",
      repeated("{% set x %}", 50000) + repeated("{% endset %}", 50000),
      std::string(2 << 20, 'x')};
  for (const std::string& source : deep) {
    EXPECT_THROW(ChatTemplate(source, "t"), InputError) << source.substr(0, 40);
  }
}

TEST(Conversation, RefusesWhatNoTemplateCanTake) {
  for (const char* messages : {"[]", "{}", "[1]", "[[]]"}) {
    EXPECT_THROW(conversation_of(messages), InputError) << messages;
  }
  EXPECT_THROW(conversation_of(R"([{"role": "user", "n": 18446744073709551615}])"),
               InputError);
  EXPECT_THROW(conversation_of(kHello, "3"), InputError);
  for (const char* name :
       {"messages", "add_generation_prompt", "tools", "documents", "bos_token"}) {
    const std::string message = message_of<InputError>([&] {
      Conversation(OrderedJson::parse(kHello), nullptr, nullptr, {{name, true}});
    });
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace longhaul::chat
