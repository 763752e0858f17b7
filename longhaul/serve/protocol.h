#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::serve {

// The messages between rank 0, which has the model, and longhaul-serve, which speaks
// HTTP, over a socket. Each message is a JSON text (system::send_text).
//
//   rank 0 -> longhaul-serve      a Served, first of all
//   longhaul-serve -> rank 0      a reply (base/failure.h) whose answer is the port
//   longhaul-serve -> rank 0      {"sequences": [a Sequence, ...]}
//   longhaul-serve -> rank 0      {"cancel": a number}
//   rank 0 -> longhaul-serve      a list of events
//
// Each event has the "number" of its sequence:
//     {"scores": [[log-probability, the largest one, its id], ...]}
//     {"id": id, "log_prob": p, "top": [[id, p], ...], "end": "stop" | "length"}
//
// Scores come once, before the first id, for the second token of the prompt and each one
// behind it. "log_prob" and "top" are absent where nobody has asked for them. The last
// event has the "end"; its id is absent where the prompt is only scored. An id that comes
// with "stop" is no part of the text.

/// What the process for HTTP has to know of a server.
struct Served {
  std::string model;       ///< the name in answers
  std::string tokenizer;   ///< the path of its file or directory
  int64_t vocab_size = 0;  ///< all ids are below
  int64_t max_length = 0;  ///< the most positions of a sequence
  std::vector<int64_t> eos_ids;
  std::string chat_problem;  ///< why no chat is answered; empty: chats are answered
  /// The control token that the template puts behind an answer; -1: none.
  int64_t end_of_turn = -1;
  std::string host;
  int port = 0;       ///< 0: any that is free
  std::string token;  ///< clients have to send it; empty: none is needed

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Served, model, tokenizer, vocab_size, max_length,
                                 eos_ids, chat_problem, end_of_turn, host, port, token)
  Json json() const { return *this; }
  static Served of(const Json& json) { return json.get<Served>(); }
};

/// One sequence that is scored, continued or both.
struct Sequence {
  uint64_t number = 0;  ///< names the sequence in events
  std::vector<int64_t> prompt;
  int64_t max_tokens = 0;  ///< 0: it is only scored
  double temperature = 0.0;
  double top_p = 1.0;
  uint64_t seed = 0;
  std::vector<int64_t> stop_ids;
  int64_t top = -1;     ///< so many of the likeliest ids come with each id; -1: none
  bool scores = false;  ///< of the prompt

  /// Returns the positions that the sequence takes. The last id is never fed.
  int64_t positions() const {
    return std::ssize(prompt) + std::max<int64_t>(max_tokens, 1) - 1;
  }
  /// Returns how many numbers the sequence and its answer may be: each token, and the
  /// log-probabilities that come with it.
  int64_t numbers() const { return (std::ssize(prompt) + max_tokens) * (2 + top); }
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Sequence, number, prompt, max_tokens, temperature, top_p,
                                 seed, stop_ids, top, scores)
  Json json() const { return *this; }
  static Sequence of(const Json& json) { return json.get<Sequence>(); }
};

/// The descriptor of the socket in longhaul-serve.
inline constexpr int kServeSocket = 3;
/// The most bytes of a message.
inline constexpr uint64_t kMostMessageBytes = uint64_t{1} << 30;
/// The most likely ids that come with one id.
inline constexpr int64_t kMostTop = 20;
/// The most sequences of all clients that wait or are computed, and the most of their
/// numbers.
inline constexpr int64_t kMostSequences = 4096;
inline constexpr int64_t kMostNumbers = int64_t{16} << 20;

}  // namespace longhaul::serve
