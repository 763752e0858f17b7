#include "longhaul/serve/answers.h"

#include <gtest/gtest.h>

#include "tests/support/small_tokenizer.h"

namespace longhaul::serve {
namespace {

const data::ByteTokenizer kBytes{"t", false, false};

Completion request_of(std::vector<int64_t> prompt, std::vector<std::string> stops = {}) {
  Completion request;
  request.stops = std::move(stops);
  request.sequences.emplace_back().prompt = std::move(prompt);
  request.sequences[0].max_tokens = 100;
  return request;
}

TEST(AnswerText, HoldsBackWhatMayBecomeAStop) {
  AnswerText text(kBytes, {'x'}, true, {"END", "\n\n"});
  EXPECT_EQ(text.add('a'), "a");
  EXPECT_EQ(text.add('E'), "");
  EXPECT_EQ(text.add('N'), "");
  EXPECT_EQ(text.add('E'), "EN") << "the second E may begin the stop";
  EXPECT_EQ(text.add('\n'), "E");
  EXPECT_EQ(text.add('b'), "\nb");
  EXPECT_FALSE(text.stopped());
  text.add('E');
  text.add('N');
  EXPECT_EQ(text.add('D'), "");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.add('c') + text.finish(), "");
}

TEST(AnswerText, GivesWhatWasHeldBackAtTheEnd) {
  AnswerText text(kBytes, {'x'}, true, {"END"});
  EXPECT_EQ(text.add('E'), "");
  EXPECT_EQ(text.add('N'), "");
  EXPECT_EQ(text.finish(), "EN");
}

TEST(Answer, HasTextAndReason) {
  const Completion request = request_of({'a'});
  Answer answer(request, 0, kBytes);
  answer.take({{"id", 'b'}});
  EXPECT_FALSE(answer.ended());
  answer.take({{"id", 'c'}, {"end", "length"}});
  ASSERT_TRUE(answer.ended());
  const OrderedJson choice = answer.choice();
  EXPECT_EQ(choice["text"], "bc");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(answer.made(), 2);
}

TEST(Answer, OfAPromptThatIsEchoedHasItsScores) {
  Completion request = request_of({'a', 0xC3, 0xA9});
  request.echo = true;
  request.prompts = {"a\xC3\xA9"};
  request.sequences[0].top = 1;
  request.sequences[0].scores = true;
  Answer answer(request, 0, kBytes);
  answer.take({{"scores", {{-1.5, -0.5, 'q'}, {-0.25, -0.25, 0xA9}}}});
  answer.take({{"id", 'z'}, {"log_prob", -2.0}, {"top", {{'y', -1.0}}}});
  answer.take({{"end", "length"}});
  const OrderedJson choice = answer.choice();
  EXPECT_EQ(choice["text"], "a\xC3\xA9z");
  const OrderedJson& told = choice["logprobs"];
  EXPECT_EQ(told["token_logprobs"], OrderedJson::parse("[null, -1.5, -0.25, -2.0]"));
  EXPECT_TRUE(told["top_logprobs"][0].is_null());
  // The object has the likeliest token and the token itself. Where both have the same
  // text, the likelier one keeps it.
  EXPECT_EQ(told["top_logprobs"][1].size(), 2U);
  EXPECT_EQ(told["top_logprobs"][1]["q"], -0.5);
  EXPECT_EQ(told["top_logprobs"][2].size(), 1U);
  EXPECT_EQ(told["top_logprobs"][2].begin().value(), -0.25);
  EXPECT_EQ(told["text_offset"], OrderedJson::parse("[0, 1, 2, 3]"));
}

// lm-eval takes the last of an echo's numbers as that of the token behind the prompt.
TEST(Answer, HasTheNumbersOfTheTokenThatStopsItButNotItsText) {
  Completion request = request_of({'a', 'b'});
  request.echo = true;
  request.prompts = {"ab"};
  request.skip_special_tokens = false;
  request.sequences[0].top = 1;
  request.sequences[0].scores = true;
  Answer answer(request, 0, kBytes);
  answer.take({{"scores", {{-1.5, -0.5, 'q'}}}});
  answer.take(
      {{"id", 257}, {"log_prob", -0.25}, {"top", {{257, -0.25}}}, {"end", "stop"}});
  ASSERT_TRUE(answer.ended());
  EXPECT_EQ(answer.made(), 1);
  const OrderedJson choice = answer.choice();
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["finish_reason"], "stop");
  const OrderedJson& told = choice["logprobs"];
  EXPECT_EQ(told["tokens"], OrderedJson::parse(R"(["a", "b", "<eos>"])"));
  EXPECT_EQ(told["token_logprobs"], OrderedJson::parse("[null, -1.5, -0.25]"));
  EXPECT_EQ(told["top_logprobs"][2], OrderedJson::parse(R"({"<eos>": -0.25})"));
}

TEST(Answer, HasNoTextOfAnIdWithoutAToken) {
  for (const bool chat : {false, true}) {
    Completion request = request_of({300});
    request.chat = chat;
    request.sequences[0].top = 1;
    Answer answer(request, 0, kBytes);
    answer.take({{"id", 300}, {"log_prob", -0.5}, {"top", {{301, -0.25}}}});
    answer.take({{"id", 'x'}, {"log_prob", -0.5}, {"top", {{'x', -0.5}}}});
    answer.take({{"end", "length"}});
    const OrderedJson choice = answer.choice();
    EXPECT_EQ(chat ? choice["message"]["content"] : choice["text"], "x");
    const OrderedJson& told = choice["logprobs"];
    if (chat) {
      EXPECT_EQ(told["content"][0]["token"], "");
      EXPECT_EQ(told["content"][0]["bytes"], OrderedJson::array());
    } else {
      EXPECT_EQ(told["tokens"], OrderedJson::parse(R"(["", "x"])"));
      EXPECT_EQ(told["text_offset"], OrderedJson::parse("[0, 0]"));
    }
  }
}

TEST(Answer, KeepsTheLargestOfTwoIdsWithOneText) {
  Completion request = request_of({'a'});
  request.sequences[0].top = 1;
  Answer answer(request, 0, kBytes);
  // Both bytes are no text of their own: both read as U+FFFD.
  answer.take({{"id", 0xA9}, {"log_prob", -2.0}, {"top", {{0xC3, -1.0}}}});
  answer.take({{"end", "stop"}});
  const OrderedJson told = answer.choice()["logprobs"];
  ASSERT_EQ(told["top_logprobs"][0].size(), 1U);
  EXPECT_EQ(told["top_logprobs"][0].begin().value(), -1.0);
  EXPECT_EQ(told["token_logprobs"][0], -2.0);
}

TEST(Answer, OfAStreamComesInParts) {
  Completion request = request_of({'a'});
  request.chat = request.stream = true;
  Answer answer(request, 0, kBytes);
  answer.take({{"id", 'h'}});
  const OrderedJson first = answer.choice();
  EXPECT_EQ(first["delta"],
            OrderedJson::parse(R"({"role": "assistant", "content": "h"})"));
  EXPECT_TRUE(first["finish_reason"].is_null());
  answer.take({{"id", 'i'}});
  answer.take({{"end", "stop"}});
  const OrderedJson last = answer.choice();
  EXPECT_EQ(last["delta"], OrderedJson::parse(R"({"content": "i"})"));
  EXPECT_EQ(last["finish_reason"], "stop");
}

TEST(Answer, EndsAtAStopAndTakesNothingBehindIt) {
  const Completion request = request_of({'a'}, {"."});
  Answer answer(request, 0, kBytes);
  for (const char c : {'o', 'k', '.'}) answer.take({{"id", c}});
  EXPECT_TRUE(answer.ended());
  answer.take({{"id", 'x'}});
  const OrderedJson choice = answer.choice();
  EXPECT_EQ(choice["text"], "ok");
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(Answer, OfBrokenWeightsHasNullInPlaceOfANumber) {
  Completion request = request_of({'a'});
  request.sequences[0].top = 1;
  Answer answer(request, 0, kBytes);
  answer.take({{"id", 'h'}, {"log_prob", nullptr}, {"top", {{'y', nullptr}}}});
  answer.take({{"end", "length"}});
  const OrderedJson told = answer.choice()["logprobs"];
  EXPECT_TRUE(told["token_logprobs"][0].is_null());
  EXPECT_TRUE(told["top_logprobs"][0].is_null());
}

TEST(ValidText, ReplacesEachByteThatIsNoText) {
  EXPECT_EQ(valid_text("a\xC3"), "a\xEF\xBF\xBD");
  EXPECT_EQ(valid_text("\xA9\xC3\xA9"), "\xEF\xBF\xBD\xC3\xA9");
}

}  // namespace
}  // namespace longhaul::serve
