#include "longhaul/serve/requests.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/small_tokenizer.h"

namespace longhaul::serve {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

/// What the requests of these tests are read with.
struct Fixture {
  Fixture() {
    served.vocab_size = 258;
    served.max_length = 40;
    served.eos_ids = {257};
    served.end_of_turn = 256;
  }
  Reading reading() const { return {served, tokenizer, &chat}; }
  Served served;
  data::ByteTokenizer tokenizer{"t", true, false};
  chat::ChatFormat chat{kTemplate, {}};
};

std::string refusal(const std::string& body, bool of_chat = false) {
  const Fixture f;
  try {
    of_chat ? read_chat_completion(body, f.reading())
            : read_completion(body, f.reading());
  } catch (const InputError& error) {
    return error.message();
  }
  return "";
}

TEST(ReadCompletion, TakesATextIdsAndListsOfEither) {
  const Fixture f;
  using Ids = std::vector<int64_t>;
  const auto prompts = [&](const std::string& prompt) {
    std::vector<Ids> found;
    const Completion request =
        read_completion("{\"prompt\": " + prompt + "}", f.reading());
    for (const Sequence& one : request.sequences) found.push_back(one.prompt);
    return found;
  };
  EXPECT_EQ(prompts("\"ab\""), (std::vector<Ids>{{256, 97, 98}}));
  EXPECT_EQ(prompts("[1, 257]"), (std::vector<Ids>{{1, 257}}));
  EXPECT_EQ(prompts("[\"a\", \"b\"]"), (std::vector<Ids>{{256, 97}, {256, 98}}));
  EXPECT_EQ(prompts("[[5], [6, 7]]"), (std::vector<Ids>{{5}, {6, 7}}));
  EXPECT_EQ(prompts("\"a\", \"add_special_tokens\": false"), (std::vector<Ids>{{97}}));
}

TEST(ReadCompletion, TakesWhatLmEvalSends) {
  const Fixture f;
  const Completion scored = read_completion(
      R"({"model": "m", "prompt": [[1, 2, 3]], "temperature": 0, "max_tokens": 1,
          "logprobs": 1, "seed": 1234, "echo": true})",
      f.reading());
  ASSERT_EQ(scored.sequences.size(), 1U);
  EXPECT_TRUE(scored.sequences[0].scores);
  EXPECT_EQ(scored.sequences[0].top, 1);
  EXPECT_EQ(scored.sequences[0].max_tokens, 1);
  EXPECT_EQ(scored.sequences[0].stop_ids, (std::vector<int64_t>{257}));
  const Completion written = read_completion(
      R"({"model": "m", "prompt": [[1, 2, 3]], "max_tokens": 20, "temperature": 0,
          "stop": ["\n\n", "<eos>"], "seed": 1234})",
      f.reading());
  EXPECT_EQ(written.stops, (std::vector<std::string>{"\n\n", "<eos>"}));
  EXPECT_EQ(written.sequences[0].seed, 1234U);
  EXPECT_EQ(written.sequences[0].top, -1);
}

TEST(ReadCompletion, EndsAtTheIdOfAStopThatAnswersDoNotShow) {
  const Fixture f;
  const auto stop_ids = [&](const std::string& more) {
    return read_completion(
               R"({"prompt": "a", "stop": ["<bos>", "x", "<bos>\n"])" + more + "}",
               f.reading())
        .sequences[0]
        .stop_ids;
  };
  EXPECT_EQ(stop_ids(""), (std::vector<int64_t>{257, 256}));
  EXPECT_EQ(stop_ids(R"(, "skip_special_tokens": false)"), (std::vector<int64_t>{257}))
      << "the text has it";
}

TEST(ReadCompletion, RefusesByKeyAndValue) {
  const auto expect = [](const std::string& body, const std::string& words) {
    EXPECT_NE(refusal(body).find(words), std::string::npos)
        << body << ": " << refusal(body);
  };
  expect("", "the body");
  expect("[1]", "not an object");
  expect("{}", "prompt is missing");
  expect(R"({"prompt": 7})", "prompt is 7");
  expect(R"({"prompt": []})", "prompt 0 has no tokens");
  expect(R"({"prompt": [258]})", "id 258 is no whole number from 0 to 257");
  expect(R"({"prompt": [-1]})", "id -1");
  expect(R"({"prompt": [1.5]})", "id 1.5");
  expect(R"({"prompt": [1e99]})", "id 1e+99");
  expect(R"({"prompt": [[1], "a", 3]})", "prompt is 3");
  expect(R"({"prompt": [1], "max_tokens": 0})", "max_tokens is 0");
  expect(R"({"prompt": [1], "max_tokens": 41})", "from 1 to 40");
  expect(R"({"prompt": [1, 2], "max_tokens": 40})", "together at most 40 + 1");
  expect(R"({"prompt": [1], "temperature": -1})", "temperature is -1");
  expect(R"({"prompt": [1], "temperature": "hot"})", "temperature is \"hot\"");
  expect(R"({"prompt": [1], "top_p": 1.5})", "top_p is 1.5");
  expect(R"({"prompt": [1], "seed": 18446744073709551615})", "seed is");
  expect(R"({"prompt": [1], "stop": ""})", "stop is \"\"");
  expect(R"({"prompt": [1], "stream": 1})", "stream is 1");
  expect(R"({"prompt": [1], "n": 2})", "n is 2, which this server does not do");
  expect(R"({"prompt": [1], "top_k": 5})", "top_k is 5");
  expect(R"({"prompt": [1], "logprobs": 21})", "from 0 to 20");
  expect(R"({"prompt": [1], "logprobs": 2, "echo": true})", "with echo at most 1");
  expect(R"({"prompt": [1], "tempreature": 0})", "\"tempreature\" is a key");
  expect(R"({"prompt": [1], "stream": true, "stream_options": true})",
         "stream_options is true, and not an object");
  expect(R"({"prompt": [1], "stream": true, "stream_options": {"include_usage": 1}})",
         "include_usage is 1");
  expect(R"({"prompt": [1], "stream": true, "stream_options": {"usage": true}})",
         "\"usage\" is a key");
  expect(R"({"prompt": [1], "stream_options": {"include_usage": true}})",
         "stream_options are there without stream");
  expect(R"({"prompt": [[1]], "add_special_tokens": true})", "prompt has ids");
  const std::string long_prompt = "{\"prompt\": \"" + std::string(60, 'a') + "\"}";
  expect(long_prompt, "prompt 0 has 61 tokens; the model takes at most 40");
}

TEST(ReadCompletion, TakesKeysThatAskForNothing) {
  EXPECT_EQ(refusal(R"({"prompt": [1], "n": 1, "best_of": 1, "presence_penalty": 0.0,
      "frequency_penalty": 0, "logit_bias": {}, "suffix": null, "top_k": -1, "user": "u",
      "max_tokens": null, "add_special_tokens": false, "stream_options": null})"),
            "");
  // All positions of the model are used: the last token is never fed.
  EXPECT_EQ(refusal(R"({"prompt": [1], "max_tokens": 40})"), "");
}

TEST(ReadChatCompletion, WritesTheModelsTemplate) {
  const Fixture f;
  const Completion request = read_chat_completion(
      R"({"messages": [{"role": "user", "content": "hi"}], "logprobs": true,
          "top_logprobs": 3})",
      f.reading());
  ASSERT_EQ(request.sequences.size(), 1U);
  const Sequence& sequence = request.sequences[0];
  const std::vector<tokenizer::TokenId> ids(sequence.prompt.begin(),
                                            sequence.prompt.end());
  EXPECT_EQ(f.tokenizer.decode(ids, false), "<user>hi<eos><assistant>");
  EXPECT_EQ(sequence.positions(), 40) << "what is left of the length";
  EXPECT_EQ(sequence.top, 3);
  EXPECT_EQ(sequence.stop_ids, (std::vector<int64_t>{257, 256}));
  EXPECT_NE(refusal(R"({"messages": []})", true), "");
  EXPECT_NE(refusal(R"({"messages": [{"role": "user"}], "top_logprobs": 2})", true)
                .find("top_logprobs is 2, but logprobs is not true"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"messages": "hi"})", true), "");
  EXPECT_NE(refusal("{}", true).find("messages is missing"), std::string::npos);
  Fixture without;
  without.served.chat_problem = "no template lies there";
  const Reading reading{without.served, without.tokenizer, nullptr};
  EXPECT_THROW(read_chat_completion(R"({"messages": [{"role": "user"}]})", reading),
               InputError);
}

TEST(ReadTokenize, AndBack) {
  const Fixture f;
  EXPECT_EQ(
      read_tokenize(R"({"prompt": "ab", "add_special_tokens": false})", f.reading()),
      (std::vector<int64_t>{97, 98}));
  EXPECT_EQ(read_tokenize(R"({"prompt": "<eos>"})", f.reading()),
            (std::vector<int64_t>{256, 257}));
  EXPECT_EQ(read_detokenize(R"({"tokens": [97, 98]})", f.reading()), "ab");
  EXPECT_THROW(read_detokenize(R"({"tokens": [999]})", f.reading()), InputError);
  EXPECT_THROW(read_tokenize(R"({"prompt": ["a"]})", f.reading()), InputError);
}

}  // namespace
}  // namespace longhaul::serve
