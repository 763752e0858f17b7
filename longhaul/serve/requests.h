#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/chat/chat_format.h"
#include "longhaul/serve/protocol.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::serve {

/// The most bytes of a request's body.
inline constexpr size_t kMostBodyBytes = size_t{8} << 20;

/// What requests are read with. All of it must outlive the calls.
struct Reading {
  const Served& served;
  const tokenizer::Tokenizer& tokenizer;
  /// The model's chat template; null: it has none.
  const chat::ChatFormat* chat = nullptr;
};

/// A request to continue prompts, as /v1/completions or /v1/chat/completions takes it.
struct Completion {
  std::vector<Sequence> sequences;   ///< without numbers
  std::vector<std::string> prompts;  ///< the text of each, where `echo` asks for it
  std::vector<std::string> stops;    ///< texts that end an answer, none of them empty
  bool echo = false;
  bool chat = false;
  bool stream = false;
  bool stream_usage = false;
  bool skip_special_tokens = true;
};

// Each function reads the JSON body of a request. It throws InputError for what is no
// such request: a value that is refused is named with its key, and so is a key that would
// have an effect which this server does not have. Pure; any thread may call them.

Completion read_completion(std::string_view body, const Reading& reading);
Completion read_chat_completion(std::string_view body, const Reading& reading);
/// Returns the ids of /tokenize: of "prompt", or of "messages" in the model's template.
std::vector<int64_t> read_tokenize(std::string_view body, const Reading& reading);
/// Returns the text of the ids of /detokenize.
std::string read_detokenize(std::string_view body, const Reading& reading);

}  // namespace longhaul::serve
