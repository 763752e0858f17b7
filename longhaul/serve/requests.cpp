#include "longhaul/serve/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::serve {
namespace {

constexpr size_t kMostStops = 64;
constexpr double kMostTemperature = 100.0;
/// The max_tokens of a completion that names none.
constexpr int64_t kUsualTokens = 16;

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  fail_input("request", text, std::forward<Args>(args)...);
}

/// Returns the beginning of a value, for messages.
std::string shown(const OrderedJson& value) {
  constexpr size_t kShown = 80;
  std::string text = json_text(value);
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

/// The keys of a request's object. A key that is null counts as absent.
class Body {
 public:
  explicit Body(std::string_view text)
      : Body(parse_ordered_json(text, "the body"), "the body") {}
  Body(OrderedJson json, const char* name) : json_(std::move(json)) {
    if (!json_.is_object()) refuse("{} is {}, and not an object", name, shown(json_));
  }

  /// Returns the value of a key, or null.
  const OrderedJson* find(const char* key) {
    known_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  int64_t integer(const char* key, int64_t otherwise, int64_t least, int64_t most) {
    const OrderedJson* value = find(key);
    if (value == nullptr) return otherwise;
    const bool fits =
        value->is_number_unsigned()
            ? value->get<uint64_t>() <= static_cast<uint64_t>(std::max<int64_t>(most, 0))
            : value->is_number_integer() && value->get<int64_t>() <= most;
    if (!fits || value->get<int64_t>() < least) {
      refuse("{} is {}; give a whole number from {} to {}", key, shown(*value), least,
             most);
    }
    return value->get<int64_t>();
  }
  double number(const char* key, double otherwise, double most) {
    const OrderedJson* value = find(key);
    if (value == nullptr) return otherwise;
    const double found = value->is_number() ? value->get<double>() : -1.0;
    if (!(found >= 0.0 && found <= most)) {
      refuse("{} is {}; give a number from 0 to {}", key, shown(*value), most);
    }
    return found;
  }
  bool flag(const char* key, bool otherwise) {
    const OrderedJson* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
      refuse("{} is {}; give true or false", key, shown(*value));
    }
    return value->get<bool>();
  }
  /// Takes a key that this server does not have, if its value asks for nothing.
  void only(const char* key, const OrderedJson& value) {
    const OrderedJson* found = find(key);
    if (found == nullptr || *found == value) return;
    refuse("{} is {}, which this server does not do; leave it out", key, shown(*found));
  }
  /// Refuses keys that nobody has asked for.
  void finish() const {
    for (const auto& [key, value] : json_.items()) {
      if (!known_.contains(key)) {
        refuse("{} is a key that this server does not know; leave it out",
               shown(OrderedJson(key)));
      }
    }
  }

 private:
  OrderedJson json_;
  std::set<std::string, std::less<>> known_;
};

std::vector<int64_t> ids_of(const OrderedJson& list, const Served& served) {
  std::vector<int64_t> ids;
  ids.reserve(list.size());
  for (const OrderedJson& value : list) {
    const bool whole = value.is_number_unsigned();
    if (!whole || value.get<uint64_t>() >= static_cast<uint64_t>(served.vocab_size)) {
      refuse("id {} is no whole number from 0 to {}: the model's vocabulary has {} ids",
             shown(value), served.vocab_size - 1, served.vocab_size);
    }
    ids.push_back(value.get<int64_t>());
  }
  return ids;
}

std::vector<int64_t> encoded(const std::string& text, bool special,
                             const Reading& reading) {
  return tokenizer::prompt_ids("request", reading.tokenizer, text,
                               reading.served.vocab_size, special);
}

std::string decoded(const std::vector<int64_t>& ids, const Reading& reading) {
  return reading.tokenizer.decode({ids.begin(), ids.end()}, false);
}

const OrderedJson& required(Body& body, const char* key) {
  const OrderedJson* value = body.find(key);
  if (value == nullptr) refuse("{} is missing", key);
  return *value;
}

/// Reads "prompt": a text, ids, or a list of either.
void read_prompts(Body& body, const Reading& reading, Completion& request) {
  const OrderedJson& prompt = required(body, "prompt");
  const bool special = body.flag("add_special_tokens", true);
  const bool is_asked = special && body.find("add_special_tokens") != nullptr;
  const auto add = [&](const OrderedJson& one) {
    Sequence& sequence = request.sequences.emplace_back();
    if (one.is_string()) {
      const auto& text = one.get_ref<const std::string&>();
      sequence.prompt = encoded(text, special, reading);
      if (request.echo) request.prompts.push_back(text);
    } else if (one.is_array()) {
      if (is_asked)
        refuse("add_special_tokens is true, but prompt has ids; add them to it");
      sequence.prompt = ids_of(one, reading.served);
      if (request.echo) request.prompts.push_back(decoded(sequence.prompt, reading));
    } else {
      refuse("prompt is {}; give a text, ids, or a list of either", shown(one));
    }
  };
  const bool several = prompt.is_array() && !prompt.empty() &&
                       (prompt[0].is_string() || prompt[0].is_array());
  if (!several) return add(prompt);
  if (std::ssize(prompt) > kMostSequences) {
    refuse("prompt has {} entries; give at most {}", prompt.size(), kMostSequences);
  }
  for (const OrderedJson& one : prompt) add(one);
}

/// Returns the ids of a conversation, up to the place where the answer begins.
std::vector<int64_t> read_messages(Body& body, const Reading& reading) {
  if (reading.chat == nullptr) {
    refuse("chats are not answered: {}", reading.served.chat_problem);
  }
  const auto part = [&](const char* key) {
    const OrderedJson* value = body.find(key);
    return value == nullptr ? OrderedJson() : *value;
  };
  const chat::Conversation conversation(required(body, "messages"), part("tools"),
                                        part("documents"), part("chat_template_kwargs"));
  const chat::Rendered rendered = reading.chat->render(
      conversation, body.flag("add_generation_prompt", true), chat::today());
  return encoded(rendered.text, body.flag("add_special_tokens", false), reading);
}

std::vector<std::string> read_stops(Body& body) {
  const OrderedJson* value = body.find("stop");
  std::vector<std::string> stops;
  if (value == nullptr) return stops;
  const auto add = [&](const OrderedJson& one) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
      refuse("stop is {}; give texts that are not empty", shown(one));
    }
    stops.push_back(one.get<std::string>());
  };
  if (!value->is_array()) {
    add(*value);
    return stops;
  }
  if (value->size() > kMostStops) {
    refuse("stop has {} texts; give at most {}", value->size(), kMostStops);
  }
  std::ranges::for_each(*value, add);
  return stops;
}

/// Returns whether a token is seen in answers. Special tokens are left out of them.
bool has_text(tokenizer::TokenId id, const Reading& reading, const Completion& request) {
  // The token stands there twice, since some tokenizers drop a text's first space.
  return !reading.tokenizer.decode({id, id}, request.skip_special_tokens).empty();
}

/// Reads what all sequences of a request have in common, except max_tokens.
Sequence read_sampling(Body& body, const Reading& reading, Completion& request) {
  Sequence common;
  common.temperature = body.number("temperature", 1.0, kMostTemperature);
  common.top_p = body.number("top_p", 1.0, 1.0);
  common.seed = static_cast<uint64_t>(body.integer("seed", 0, INT64_MIN, INT64_MAX));
  common.stop_ids = reading.served.eos_ids;
  request.stops = read_stops(body);
  request.stream = body.flag("stream", false);
  request.skip_special_tokens = body.flag("skip_special_tokens", true);
  for (const std::string& stop : request.stops) {
    const auto id = reading.tokenizer.token_to_id(stop);
    if (id && !has_text(*id, reading, request)) common.stop_ids.push_back(*id);
  }
  if (const OrderedJson* found = body.find("stream_options")) {
    if (!request.stream)
      refuse("stream_options are there without stream; leave them out");
    Body options(*found, "stream_options");
    request.stream_usage = options.flag("include_usage", false);
    options.only("continuous_usage_stats", false);
    options.finish();
  }
  // Any name of the model will do: there is one model, and the answer names it.
  body.find("model");
  body.find("user");
  body.only("n", 1);
  body.only("best_of", 1);
  body.only("suffix", "");
  body.only("presence_penalty", 0);
  body.only("frequency_penalty", 0);
  body.only("repetition_penalty", 1);
  body.only("logit_bias", OrderedJson::object());
  body.only("top_k", -1);
  body.only("min_p", 0);
  body.only("ignore_eos", false);
  return common;
}

void settle(Completion& request, const Sequence& common, const Served& served) {
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    Sequence& sequence = request.sequences[i];
    std::vector<int64_t> prompt = std::move(sequence.prompt);
    sequence = common;
    sequence.prompt = std::move(prompt);
    if (sequence.prompt.empty()) refuse("prompt {} has no tokens", i);
    const int64_t length = std::ssize(sequence.prompt);
    if (length > served.max_length) {
      refuse("prompt {} has {} tokens; the model takes at most {}", i, length,
             served.max_length);
    }
    if (sequence.max_tokens < 0) {  // chats: what is left
      sequence.max_tokens = served.max_length - length + 1;
    }
    if (sequence.positions() > served.max_length) {
      refuse("prompt {} has {} tokens, and max_tokens is {}: together at most {} + 1", i,
             length, sequence.max_tokens, served.max_length);
    }
  }
}

}  // namespace

Completion read_completion(std::string_view text, const Reading& reading) {
  Body body(text);
  Completion request;
  request.echo = body.flag("echo", false);
  Sequence common = read_sampling(body, reading, request);
  common.max_tokens = body.integer("max_tokens", kUsualTokens, request.echo ? 0 : 1,
                                   reading.served.max_length);
  common.top = body.integer("logprobs", -1, 0, kMostTop);
  common.scores = request.echo && common.top >= 0;
  if (common.scores && common.top > 1) {
    refuse("logprobs is {}; with echo at most 1, the likeliest token, is there",
           common.top);
  }
  read_prompts(body, reading, request);
  body.finish();
  settle(request, common, reading.served);
  return request;
}

Completion read_chat_completion(std::string_view text, const Reading& reading) {
  Body body(text);
  Completion request;
  request.chat = true;
  Sequence common = read_sampling(body, reading, request);
  if (reading.served.end_of_turn >= 0) {
    common.stop_ids.push_back(reading.served.end_of_turn);
  }
  const int64_t most = reading.served.max_length;
  common.max_tokens = body.integer("max_completion_tokens",
                                   body.integer("max_tokens", -1, 1, most), 1, most);
  const bool told = body.flag("logprobs", false);
  const int64_t top = body.integer("top_logprobs", 0, 0, kMostTop);
  if (top > 0 && !told) refuse("top_logprobs is {}, but logprobs is not true", top);
  common.top = told ? top : -1;
  request.sequences.emplace_back().prompt = read_messages(body, reading);
  body.finish();
  settle(request, common, reading.served);
  return request;
}

std::vector<int64_t> read_tokenize(std::string_view text, const Reading& reading) {
  Body body(text);
  body.find("model");
  body.only("return_token_strs", false);
  std::vector<int64_t> ids;
  if (body.find("messages") != nullptr) {
    ids = read_messages(body, reading);
  } else {
    const OrderedJson& prompt = required(body, "prompt");
    if (!prompt.is_string()) refuse("prompt is {}; give a text", shown(prompt));
    ids = encoded(prompt.get<std::string>(), body.flag("add_special_tokens", true),
                  reading);
  }
  body.finish();
  return ids;
}

std::string read_detokenize(std::string_view text, const Reading& reading) {
  Body body(text);
  body.find("model");
  const OrderedJson& tokens = required(body, "tokens");
  if (!tokens.is_array()) refuse("tokens is {}; give a list of ids", shown(tokens));
  std::string found = decoded(ids_of(tokens, reading.served), reading);
  body.finish();
  return found;
}

}  // namespace longhaul::serve
