#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/serve/requests.h"
#include "longhaul/tokenizer/stream_decoder.h"

namespace longhaul::serve {

/// Makes text of ids that come one by one, up to the first of some texts that end it.
class AnswerText {
 public:
  /// `before` are the ids in front, whose text is not returned. The tokenizer must
  /// outlive this object.
  AnswerText(const tokenizer::Tokenizer& tokenizer, const std::vector<int64_t>& before,
             bool skip_special_tokens, std::vector<std::string> stops);

  /// Returns the text that has become certain. Text that may turn out to be the beginning
  /// of a stop is held back.
  std::string add(int64_t id);
  /// Returns the text that was held back.
  std::string finish();
  /// Returns whether a stop has come. The text ends before it, and nothing follows.
  bool stopped() const { return stopped_; }

 private:
  std::string take(bool all);

  tokenizer::StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

/// One sequence of a request and what has come of it.
class Answer {
 public:
  /// `request` and `tokenizer` must outlive this object.
  Answer(const Completion& request, size_t index, const tokenizer::Tokenizer& tokenizer);

  /// Takes an event of the sequence (serve/protocol.h).
  void take(const Json& event);
  /// Returns whether nothing more comes that counts.
  bool ended() const { return !reason_.empty(); }
  /// Returns the entry of "choices" for what has come since the last call: a part of a
  /// stream, or all.
  OrderedJson choice();
  int64_t made() const { return made_; }  ///< ids so far

 private:
  struct Token {
    int64_t id = 0;
    std::optional<double> log_prob;
    std::vector<std::pair<int64_t, double>> top;  ///< the likeliest, best first
  };

  void take_scores(const Json& scores);
  void take_token(const Json& event, bool is_text);
  std::string bytes_of(int64_t id) const;
  OrderedJson log_probs();
  OrderedJson chat_log_probs();

  const Completion& request_;
  size_t index_;
  const tokenizer::Tokenizer& tokenizer_;
  AnswerText answer_;
  std::string fresh_;          ///< text since the last choice
  std::vector<Token> tokens_;  ///< with log-probabilities, since the last choice
  int64_t offset_ = 0;         ///< characters of all tokens so far
  bool first_ = true;          ///< no part of a stream was made yet
  int64_t made_ = 0;
  std::string reason_;  ///< "stop", "length"; empty: it goes on
};

/// Returns the object of an answer, whose "choices" are these. `number` tells answers
/// apart. A `part` belongs to a stream.
OrderedJson answer_object(const Completion& request, const std::string& model,
                          uint64_t number, std::vector<OrderedJson> choices, bool part);
/// Returns "usage": how many tokens were read and made.
OrderedJson usage_of(const Completion& request, const std::vector<Answer>& answers);

/// Returns bytes as UTF-8, with U+FFFD in place of each byte that is none.
std::string valid_text(std::string_view bytes);

}  // namespace longhaul::serve
