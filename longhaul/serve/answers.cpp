#include "longhaul/serve/answers.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/process.h"
#include "longhaul/base/text.h"

namespace longhaul::serve {
namespace {

constexpr const char* kStop = "stop";

/// Returns how many bytes at the end of `text` are the beginning of `stop`, but not all
/// of it.
size_t begun(std::string_view text, std::string_view stop) {
  size_t length = std::min(text.size(), stop.size() - 1);
  while (length > 0 && !text.ends_with(stop.substr(0, length))) --length;
  return length;
}

}  // namespace

std::string valid_text(std::string_view bytes) {
  std::string text;
  while (const auto bad = find_invalid_utf8(bytes)) {
    text.append(bytes.substr(0, *bad)).append("\xEF\xBF\xBD");
    bytes.remove_prefix(*bad + 1);
  }
  return text.append(bytes);
}

AnswerText::AnswerText(const tokenizer::Tokenizer& tokenizer,
                       const std::vector<int64_t>& before, bool skip_special_tokens,
                       std::vector<std::string> stops)
    : decoder_(tokenizer, skip_special_tokens, {before.begin(), before.end()}),
      stops_(std::move(stops)) {}

std::string AnswerText::add(int64_t id) {
  held_ += decoder_.add(static_cast<tokenizer::TokenId>(id));
  return take(false);
}

std::string AnswerText::finish() {
  held_ += decoder_.finish();
  return take(true);
}

std::string AnswerText::take(bool all) {
  if (stopped_) return {};
  size_t end = std::string::npos, open = 0;
  for (const std::string& stop : stops_) {
    end = std::min(end, held_.find(stop));
    if (!all) open = std::max(open, begun(held_, stop));
  }
  stopped_ = end != std::string::npos;
  std::string certain = held_.substr(0, stopped_ ? end : held_.size() - open);
  held_.erase(0, certain.size());
  return certain;
}

Answer::Answer(const Completion& request, size_t index,
               const tokenizer::Tokenizer& tokenizer)
    : request_(request),
      index_(index),
      tokenizer_(tokenizer),
      answer_(tokenizer, request.sequences[index].prompt, request.skip_special_tokens,
              request.stops) {
  if (request.echo) fresh_ = request.prompts[index];
}

void Answer::take(const Json& event) {
  if (ended()) return;
  if (event.contains("scores")) return take_scores(event["scores"]);
  const std::string end = event.value("end", "");
  if (event.contains("id")) take_token(event, end != kStop);
  if (!end.empty()) fresh_ += answer_.finish();
  reason_ = answer_.stopped() ? kStop : end;
}

/// Takes a token of the text, or the one that has ended it.
void Answer::take_token(const Json& event, bool is_text) {
  Token token{event["id"].get<int64_t>(), {}, {}};
  ++made_;
  if (is_text) fresh_ += answer_.add(token.id);
  if (!event.contains("log_prob")) return;
  // A number that is not finite, of broken weights, comes as null.
  if (event["log_prob"].is_number()) token.log_prob = event["log_prob"].get<double>();
  for (const Json& entry : event["top"]) {
    if (!entry[1].is_number()) continue;
    token.top.emplace_back(entry[0].get<int64_t>(), entry[1].get<double>());
  }
  tokens_.push_back(std::move(token));
}

void Answer::take_scores(const Json& scores) {
  const Sequence& sequence = request_.sequences[index_];
  tokens_.push_back({sequence.prompt[0], {}, {}});
  for (size_t i = 0; i < scores.size(); ++i) {
    Token token{sequence.prompt.at(i + 1), {}, {}};
    if (scores[i][0].is_number()) token.log_prob = scores[i][0].get<double>();
    if (sequence.top > 0 && scores[i][1].is_number()) {
      token.top.emplace_back(scores[i][2].get<int64_t>(), scores[i][1].get<double>());
    }
    tokens_.push_back(std::move(token));
  }
}

/// Returns the bytes of a token. An id without a token, as a padded vocabulary has, adds
/// none, as in decoding.
std::string Answer::bytes_of(int64_t id) const {
  const auto token = static_cast<tokenizer::TokenId>(id);
  return tokenizer_.id_to_token(token) ? tokenizer_.token_bytes(token) : std::string();
}

/// Returns "logprobs" of a completion. The likeliest ids and the id itself stand in one
/// object by their texts. Where two ids have one text, the likelier one keeps it, so that
/// the largest number is always there.
OrderedJson Answer::log_probs() {
  OrderedJson tokens = OrderedJson::array(), values = tokens, tops = tokens,
              offsets = tokens;
  for (const Token& token : tokens_) {
    const std::string text = valid_text(bytes_of(token.id));
    offsets.push_back(offset_);
    offset_ += count_code_points(text);
    OrderedJson top = OrderedJson::object();
    for (const auto& [id, log_prob] : token.top) {
      top.emplace(valid_text(bytes_of(id)), log_prob);
    }
    if (token.log_prob) top.emplace(text, *token.log_prob);
    tokens.push_back(text);
    values.push_back(token.log_prob ? OrderedJson(*token.log_prob) : OrderedJson());
    tops.push_back(top.empty() ? OrderedJson() : std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

OrderedJson Answer::chat_log_probs() {
  const auto entry = [&](int64_t id, const std::optional<double>& log_prob) {
    const std::string bytes = bytes_of(id);
    OrderedJson numbers = OrderedJson::array();
    for (const char byte : bytes) numbers.push_back(static_cast<uint8_t>(byte));
    return OrderedJson{{"token", valid_text(bytes)},
                       {"logprob", log_prob ? OrderedJson(*log_prob) : OrderedJson()},
                       {"bytes", std::move(numbers)}};
  };
  OrderedJson content = OrderedJson::array();
  for (const Token& token : tokens_) {
    OrderedJson top = OrderedJson::array();
    for (const auto& [id, log_prob] : token.top) top.push_back(entry(id, log_prob));
    OrderedJson one = entry(token.id, token.log_prob);
    one["top_logprobs"] = std::move(top);
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}};
}

OrderedJson Answer::choice() {
  OrderedJson choice = {{"index", index_}};
  std::string text = valid_text(std::exchange(fresh_, {}));
  if (!request_.chat) {
    choice["text"] = std::move(text);
  } else if (request_.stream) {
    choice["delta"] = OrderedJson::object();
    if (first_) choice["delta"]["role"] = "assistant";
    choice["delta"]["content"] = std::move(text);
  } else {
    choice["message"] = {{"role", "assistant"}, {"content", std::move(text)}};
  }
  first_ = false;
  choice["logprobs"] = nullptr;
  if (request_.sequences[index_].top >= 0) {
    choice["logprobs"] = request_.chat ? chat_log_probs() : log_probs();
    tokens_.clear();
  }
  choice["finish_reason"] = ended() ? OrderedJson(reason_) : OrderedJson();
  return choice;
}

OrderedJson answer_object(const Completion& request, const std::string& model,
                          uint64_t number, std::vector<OrderedJson> choices, bool part) {
  const char* object = !request.chat ? "text_completion"
                       : part        ? "chat.completion.chunk"
                                     : "chat.completion";
  return {{"id", fmt::format("{}-{}", request.chat ? "chatcmpl" : "cmpl", number)},
          {"object", object},
          {"created", static_cast<int64_t>(unix_time())},
          {"model", model},
          {"choices", std::move(choices)}};
}

OrderedJson usage_of(const Completion& request, const std::vector<Answer>& answers) {
  int64_t read = 0, made = 0;
  for (const Sequence& sequence : request.sequences) read += std::ssize(sequence.prompt);
  for (const Answer& answer : answers) made += answer.made();
  return {{"prompt_tokens", read},
          {"completion_tokens", made},
          {"total_tokens", read + made}};
}

}  // namespace longhaul::serve
