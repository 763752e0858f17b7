#include "longhaul/serve/protocol.h"

#include <algorithm>

namespace longhaul::serve {

Json Served::json() const {
  return {{"model", model},
          {"tokenizer", tokenizer},
          {"vocab_size", vocab_size},
          {"max_length", max_length},
          {"eos_ids", eos_ids},
          {"end_of_turn", end_of_turn},
          {"chat_problem", chat_problem},
          {"host", host},
          {"port", port},
          {"token", token}};
}

Served Served::of(const Json& json) {
  Served served;
  json.at("model").get_to(served.model);
  json.at("tokenizer").get_to(served.tokenizer);
  json.at("vocab_size").get_to(served.vocab_size);
  json.at("max_length").get_to(served.max_length);
  json.at("eos_ids").get_to(served.eos_ids);
  json.at("chat_problem").get_to(served.chat_problem);
  json.at("end_of_turn").get_to(served.end_of_turn);
  json.at("host").get_to(served.host);
  json.at("port").get_to(served.port);
  json.at("token").get_to(served.token);
  return served;
}

int64_t Sequence::positions() const {
  return std::ssize(prompt) + std::max<int64_t>(max_tokens, 1) - 1;
}

Json Sequence::json() const {
  return {{"number", number},           {"prompt", prompt}, {"max_tokens", max_tokens},
          {"temperature", temperature}, {"top_p", top_p},   {"seed", seed},
          {"stop_ids", stop_ids},       {"top", top},       {"scores", scores}};
}

Sequence Sequence::of(const Json& json) {
  Sequence sequence;
  json.at("number").get_to(sequence.number);
  json.at("prompt").get_to(sequence.prompt);
  json.at("max_tokens").get_to(sequence.max_tokens);
  json.at("temperature").get_to(sequence.temperature);
  json.at("top_p").get_to(sequence.top_p);
  json.at("seed").get_to(sequence.seed);
  json.at("stop_ids").get_to(sequence.stop_ids);
  json.at("top").get_to(sequence.top);
  json.at("scores").get_to(sequence.scores);
  return sequence;
}

}  // namespace longhaul::serve
