#include "longhaul/data/tasks/task_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "longhaul/base/json.h"
#include "longhaul/data/tasks/task_rows.h"
#include "longhaul/data/tasks/task_tokens.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/small_tokenizer.h"

namespace longhaul::data {
namespace {

struct Asked {
  std::string context, continuation, log_prob, greedy = "False";
};

/// Returns a line as lm-eval writes it for a question with these requests and scores.
Json sample(int64_t doc_id, const std::string& target, const std::vector<Asked>& asked,
            const Json& scores) {
  Json line = {{"doc_id", doc_id}, {"target", target}, {"filter", "none"}};
  for (size_t i = 0; i < asked.size(); ++i) {
    line["arguments"]["gen_args_" + std::to_string(i)] = {
        {"arg_0", asked[i].context}, {"arg_1", asked[i].continuation}};
    line["filtered_resps"].push_back({asked[i].log_prob, asked[i].greedy});
  }
  for (const auto& [metric, score] : scores.items()) {
    line["metrics"].push_back(metric);
    line[metric] = score;
  }
  return line;
}

Json rolling(int64_t doc_id, const std::string& text, double log_prob, int words,
             int bytes) {
  return {{"doc_id", doc_id},
          {"arguments", {{"gen_args_0", {{"arg_0", text}}}}},
          {"filtered_resps", {std::to_string(log_prob)}},
          {"metrics", {"word_perplexity", "byte_perplexity", "bits_per_byte"}},
          {"word_perplexity", {log_prob, words}},
          {"byte_perplexity", {log_prob, bytes}},
          {"bits_per_byte", {log_prob, bytes}}};
}

/// Files of samples in a directory of the test's own.
class TaskFileTest : public testing::Test {
 protected:
  TaskFile read(const std::vector<Json>& lines) {
    std::string text;
    for (const Json& line : lines) text += line.dump() + "\n";
    return read_text_file(text);
  }
  TaskFile read_text_file(const std::string& text) {
    write_file(dir_ / "samples.jsonl", text);
    return read_task_file(dir_ / "samples.jsonl");
  }
  std::string refused(const std::vector<Json>& lines) {
    return message_of<InputError>([&] { read(lines); });
  }
  /// Encodes the requests of loglikelihood questions.
  TaskEncoding encode(const std::vector<std::pair<std::string, std::string>>& requests,
                      int64_t seq_len, bool own_bos, int64_t vocab_size = 300) {
    std::vector<Json> lines;
    for (const auto& [context, continuation] : requests) {
      lines.push_back(
          sample(std::ssize(lines), "", {{context, continuation, "-1.0"}}, {{"acc", 0}}));
    }
    TaskFile task = read(lines);
    return encode_task(task, ByteTokenizer(dir_ / "tokenizer.json", own_bos, false),
                       seq_len, vocab_size);
  }

  TestDirectory dir_;
};

const Json kScores = {{"acc", 0.0}, {"acc_norm", 1.0}, {"acc_bytes", 1.0}};
const std::vector<Asked> kTwo = {{"Q:", " \u00e4", "-1.0"}, {"Q:", " bbbb", "-1.5"}};

std::vector<Asked> two_choices() {
  return {{"Q:", " x", "-0.5", "True"}, {"Q:", " yyy", "-1.2"}};
}

TEST_F(TaskFileTest, ScoresAndStandardErrorsAreThoseOfLmEval) {
  const TaskFile task =
      read({sample(0, "1", kTwo, kScores),
            sample(7, "0", two_choices(),
                   {{"acc", 1.0}, {"acc_norm", 0.0}, {"acc_bytes", 0.0}})});
  EXPECT_EQ(task.kind, TaskKind::MultipleChoice);
  EXPECT_EQ(task.delimiter, " ");
  ASSERT_EQ(task.questions.size(), 2U);
  EXPECT_EQ(task.questions[1].doc_id, 7);
  EXPECT_EQ(task.questions[1].right, std::vector<int64_t>{0});
  EXPECT_EQ(task.requests[0].characters, 1);
  EXPECT_EQ(task.requests[0].bytes, 2);
  // These answers make the first question right by all metrics and the second by none.
  const std::vector<TaskAnswer> answers = {
      {-3.0, false}, {-1.0, false}, {-3.0, false}, {-1.0, false}};
  const auto figures = task_figures(task, answers);
  ASSERT_EQ(figures.size(), 3U);
  for (const run::TaskFigure& figure : figures) {
    EXPECT_EQ(figure.value, 0.5) << figure.name;
    EXPECT_DOUBLE_EQ(figure.error, 0.5) << figure.name;
  }
}

TEST_F(TaskFileTest, TheDelimiterIsTheOneByWhichTheRecordedScoresComeOut) {
  EXPECT_EQ(read({sample(0, "0", two_choices(), {{"acc_norm", 0.0}})}).delimiter, " ");
  EXPECT_EQ(read({sample(0, "0", two_choices(), {{"acc_norm", 1.0}})}).delimiter, "");
}

TEST_F(TaskFileTest, ATargetIsANumberOrATextOrFollowsFromTheScoreOfTwoContexts) {
  const auto right = [&](const std::string& target, double acc,
                         const std::vector<Asked>& asked) {
    return read({sample(0, target, asked, {{"acc", acc}})}).questions[0].right;
  };
  const std::vector<Asked> digits = {{"Q:", " 1", "-2.0"}, {"Q:", " 0", "-1.0"}};
  EXPECT_EQ(right("1", 1.0, digits), std::vector<int64_t>{1});
  EXPECT_EQ(right("1", 0.0, digits), std::vector<int64_t>{0});  // the text
  EXPECT_EQ(right("True", 1.0, digits), std::vector<int64_t>{1});
  EXPECT_EQ(right("[0, 1]", 1.0, digits), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(right("yyy", 0.0, two_choices()), std::vector<int64_t>{1});
  const std::vector<Asked> contexts = {{"he", " ran", "-2.0"}, {"she", " ran", "-1.0"}};
  EXPECT_EQ(right("ran", 1.0, contexts), std::vector<int64_t>{1});
  EXPECT_EQ(right("ran", 0.0, contexts), std::vector<int64_t>{0});
}

TEST_F(TaskFileTest, ContinuationsAndTextsHaveTheirPerplexities) {
  const TaskFile cloze = read(
      {sample(0, "", {{"a", " b", "-1.0", "True"}}, {{"acc", 1}, {"perplexity", -1.0}}),
       sample(1, "", {{"a", " c", "-2.5"}}, {{"acc", 0}, {"perplexity", -2.5}})});
  EXPECT_EQ(cloze.kind, TaskKind::LogLikelihood);
  const auto figures =
      task_figures(cloze, std::vector<TaskAnswer>{{-1.0, true}, {-3.0, false}});
  EXPECT_EQ(figures[0].name, "acc");
  EXPECT_EQ(figures[0].value, 0.5);
  EXPECT_DOUBLE_EQ(figures[1].value, std::exp(2.0));
  EXPECT_DOUBLE_EQ(figures[1].error, std::exp(2.0));
  const TaskFile texts =
      read({rolling(0, "one two", -4.0, 2, 8), rolling(1, "a b c d", -2.0, 4, 12)});
  EXPECT_EQ(texts.kind, TaskKind::Rolling);
  const auto of_texts =
      task_figures(texts, std::vector<TaskAnswer>{{-10.0, false}, {-20.0, false}});
  EXPECT_DOUBLE_EQ(of_texts[0].value, std::exp(5.0));
  EXPECT_DOUBLE_EQ(of_texts[1].value, std::exp(1.5));
  EXPECT_DOUBLE_EQ(of_texts[2].value, 1.5 / std::log(2.0));
  EXPECT_TRUE(std::isnan(of_texts[2].error));
}

TEST_F(TaskFileTest, WhatIsNoTaskIsRefusedWithItsLine) {
  const Json good = sample(0, "1", kTwo, kScores);
  const auto second = [&](const char* field, const Json& value) {
    Json line = sample(1, "1", kTwo, kScores);
    if (value.is_null()) {
      line.erase(field);
    } else {
      line[field] = value;
    }
    return refused({good, line});
  };
  EXPECT_HAS(second("target", nullptr), "line 2: the field 'target' is missing");
  EXPECT_HAS(second("target", "neither"), "line 2: the target \"neither\" is neither");
  EXPECT_HAS(second("arguments", Json::object()), "line 2: arguments has no gen_args_0");
  EXPECT_HAS(second("arguments", nullptr), "lm_eval --model dummy");
  EXPECT_HAS(second("doc_id", 0), "line 2: doc_id 0 stands there for the second time");
  EXPECT_HAS(second("acc", 0.4),
             "line 2: acc of the answers in the file is 0 by "
             "lm-eval's rules, and the file says 0.4");
  EXPECT_HAS(second("filtered_resps", Json::array({Json::array({"-1", "no"})})),
             "line 2: filtered_resps has 1 answers to 2 requests");
  Json generates = good;
  generates["arguments"] = {
      {"gen_args_0", {{"arg_0", "Q:"}, {"arg_1", {{"until", {"."}}}}}}};
  EXPECT_HAS(refused({generates}), "line 1: the task has the model generate text");
  EXPECT_HAS(refused({sample(0, "1", kTwo, {{"mcc", 0.0}})}), "(mcc) none is computed");
  EXPECT_HAS(refused({sample(0, "-1", kTwo, {{"acc", 0.0}})}), "no question has a right");
  EXPECT_HAS(refused({}), "holds no question");
  EXPECT_HAS(message_of<InputError>([&] { read_text_file("{\"doc_id\": 1"); }), "line 1");
  EXPECT_HAS(message_of<InputError>([&] { read_text_file("[1]\n"); }), "line 1");
}

TEST_F(TaskFileTest, RequestsBecomeTokensByLmEvalsRules) {
  const TaskEncoding made =
      encode({{"ab ", "c"},         // the space goes over
              {"ab\u00a0\n", "c"},  // NBSP and a line end go over, too
              {"", "xy"},           // the prefix token
              {"<bos>a", "b"},      // has its own
              {"abcdefg", "hi"}},   // too long
             7, /*own_bos=*/true);
  const std::vector<std::vector<int32_t>> wanted = {
      {256, 'a', 'b', ' ', 'c'},
      {256, 'a', 'b', 0xC2, 0xA0, '\n', 'c'},
      {256, 'x', 'y'},
      {'<', 'b', 'o', 's', '>', 'a', 'b'},
      {'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'}};
  const std::vector<int32_t> scored = {2, 4, 2, 1, 2};
  auto from = made.tokens.ids.begin();
  ASSERT_EQ(made.tokens.parts.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const TaskPart& part = made.tokens.parts[i];
    EXPECT_EQ(part.request, static_cast<int32_t>(i));
    EXPECT_EQ(part.scored, scored[i]) << i;
    EXPECT_EQ(std::vector<int32_t>(from, from + part.tokens), wanted[i]) << i;
    from += part.tokens;
  }
  EXPECT_EQ(made.cut, 1);
  const TaskTokens again = TaskTokens::of(made.tokens.bytes());
  EXPECT_EQ(again.ids, made.tokens.ids);
  EXPECT_EQ(again.bytes(), made.tokens.bytes());
}

TEST_F(TaskFileTest, ALongTextIsScoredInWindowsOfWhichTheLastReachesBack) {
  TaskFile task =
      read({rolling(0, "abcdefghij", -1.0, 1, 10), rolling(1, "k", -1, 1, 1)});
  const ByteTokenizer tokenizer(dir_ / "tokenizer.json", false, false);
  const TaskTokens tokens = encode_task(task, tokenizer, 4, 300).tokens;
  std::vector<std::string> windows;
  size_t from = 0;
  for (const TaskPart& part : tokens.parts) {
    std::string text = std::to_string(part.request) + ":";
    for (int32_t i = 0; i < part.tokens; ++i, ++from) {
      if (i == part.tokens - part.scored) text += '|';
      text += tokens.ids[from] == 256 ? '^' : static_cast<char>(tokens.ids[from]);
    }
    windows.push_back(text);
  }
  EXPECT_EQ(windows,
            (std::vector<std::string>{"0:^|abcd", "0:d|efgh", "0:fgh|ij", "1:^|k"}));
}

TEST_F(TaskFileTest, TextsWithoutAnyTokenAreRefusedByTheFile) {
  TaskFile task;
  task.path = "empty.jsonl";
  task.kind = TaskKind::Rolling;
  task.requests = {{"", ""}, {"", ""}};
  task.questions = {{0, 0, 1, {}, {}}, {1, 1, 2, {}, {}}};
  const ByteTokenizer tokenizer(dir_ / "tokenizer.json", false, false);
  EXPECT_HAS(message_of<InputError>([&] { encode_task(task, tokenizer, 4, 300); }),
             "empty.jsonl: no text has a token");
}

TEST_F(TaskFileTest, RequestsThatNoModelCanAnswerAreRefusedByTheirQuestion) {
  const auto refused = [&](const std::string& context, const std::string& continuation,
                           int64_t vocab_size) {
    return message_of<InputError>([&] {
      encode({{"a", "b"}, {context, continuation}}, 4, /*own_bos=*/false, vocab_size);
    });
  };
  EXPECT_HAS(refused("a", "z", 'z'),
             "doc_id 1: the tokenizer gives id 122, and the "
             "model's vocabulary has 122 ids");
  EXPECT_HAS(refused("a", "", 300), "doc_id 1: the continuation \"\" has no token");
  EXPECT_HAS(refused(" ", "b", 300), "doc_id 1: the context \"\" has no token");
  EXPECT_HAS(refused("a", "bcdef", 300), "doc_id 1: a continuation has 5 tokens");
  EXPECT_HAS(refused("", "b", 200), "no bos and no eos token of the model's vocabulary");
}

TEST_F(TaskFileTest, RowsHoldEachRequestOnceBesideOthersThatItDoesNotSee) {
  const TaskEncoding made =
      encode({{"abcd", "ef"}, {"g", "h"}, {"", "ij"}, {"kl", "m"}}, 6,
             /*own_bos=*/false);
  const TaskRows rows(made.tokens, 6, 300);
  EXPECT_EQ(rows.num_requests(), 4);
  ASSERT_EQ(rows.num_sequences(), 2);
  TokenBatch batch;
  rows.shape(batch, 2);
  for (int64_t row = 0; row < 2; ++row) rows.read(row, batch, row);
  // The rows are abcde with g, then ^i with kl and padding.
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'g',  //
                                                256, 'i', 'k', 'l', 0, 0}));
  const int32_t no = kIgnore;
  EXPECT_EQ(batch.targets[0], (std::vector<int32_t>{no, no, no, 'e', 'f', 'h',  //
                                                    'i', 'j', no, 'm', no, no}));
  EXPECT_EQ(batch.targets[1],
            (std::vector<int32_t>{no, no, no, 0, 0, 1, 2, 2, no, 3, no, no}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(batch.document_start,
            (std::vector<int32_t>{0, 0, 0, 0, 0, 5, 0, 0, 2, 2, 4, 4}));
  EXPECT_EQ(batch.real, (std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}));
}

TEST_F(TaskFileTest, ChoicesOfOneTokenBehindOneContextShareTheirPlace) {
  const TaskEncoding made =
      encode({{"abc", "d"}, {"abc", "e"}, {"abx", "d"}, {"abc", "fg"}, {"abc", "d"}}, 6,
             /*own_bos=*/false);
  const TaskRows rows(made.tokens, 6, 300);
  EXPECT_EQ(rows.num_requests(), 5);
  EXPECT_EQ(rows.losses().size(), 6U);
  std::vector<std::vector<int32_t>> found;  // request, token, place
  for (int64_t row = 0; row < rows.num_sequences(); ++row) {
    TokenBatch batch;
    rows.shape(batch, 1);
    rows.read(0, batch, 0);  // the next read replaces it
    rows.read(row, batch, 0);
    for (size_t term = 0; term < 6; term += 2) {
      for (size_t i = 0; i < 6; ++i) {
        ASSERT_EQ(batch.targets[term][i] < 0, batch.targets[term + 1][i] < 0);
        if (batch.targets[term][i] < 0) continue;
        found.push_back({batch.targets[term + 1][i], batch.targets[term][i],
                         static_cast<int32_t>(row * 6) + static_cast<int32_t>(i)});
      }
    }
  }
  std::ranges::sort(found);
  ASSERT_EQ(found.size(), 6U);
  EXPECT_EQ(found[0][1], 'd');
  EXPECT_EQ(found[1][1], 'e');
  EXPECT_EQ(found[2][1], 'd');
  EXPECT_EQ(found[5][1], 'd');
  EXPECT_EQ(found[1][2], found[0][2]);
  EXPECT_EQ(found[5][2], found[0][2]);
  EXPECT_NE(found[2][2], found[0][2]);  // behind another context
  EXPECT_EQ(found[3][1], 'f');
  EXPECT_EQ(found[4][1], 'g');
  EXPECT_NE(found[3][2], found[0][2]);  // two tokens, the first of which is seen
  EXPECT_EQ(rows.num_sequences(), 2);   // abc and abx, then abcf
}

}  // namespace
}  // namespace longhaul::data
