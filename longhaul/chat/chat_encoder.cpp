#include "longhaul/chat/chat_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::chat {
namespace {

using tokenizer::TokenId;
using Ids = std::vector<TokenId>;

struct FindingText {
  std::string_view name;
  std::string_view words;
};
constexpr std::array<FindingText, kFindings> kTexts = {{
    {"chats", "conversations"},
    {"pairs", "pairs"},
    {"control_tokens_in_messages", "control tokens that a message spells"},
    {"not_printed", "contents, reasonings or tool calls that the template leaves out"},
    {"silent_turns", "turns of the assistant without a target"},
    {"unended_turns", "turns that no control token ends"},
    {"tokens_across_edges", "tokens that lie across the edge of a turn"},
    {"prompts_cut", "prompts whose end the answer changes"},
}};

/// How many tokens a text that ends at an edge may have of its own there, where the whole
/// text has one token across the edge.
constexpr size_t kMostAtEdge = 8;

size_t common_ids(const Ids& a, const Ids& b) {
  const auto [end, other] = std::ranges::mismatch(a, b);
  return static_cast<size_t>(end - a.begin());
}

}  // namespace

std::string_view finding_name(Finding finding) {
  return kTexts[static_cast<size_t>(finding)].name;
}

std::string_view finding_words(Finding finding) {
  return kTexts[static_cast<size_t>(finding)].words;
}

std::string_view finding_words_of(std::string_view name) {
  const auto found = std::ranges::find(kTexts, name, &FindingText::name);
  return found == kTexts.end() ? name : found->words;
}

/// The work on one record.
class ChatEncoder::Work {
 public:
  Work(const ChatEncoder& encoder, const ChatRecord& record)
      : encoder_(encoder), record_(record) {}

  EncodedRecord run() {
    if (record_.kind == ChatRecord::Kind::Chat) {
      add_chat();
    } else {
      add_answers();
    }
    return std::move(result_);
  }

 private:
  void find(Finding finding, int64_t count = 1) {
    result_.findings[static_cast<size_t>(finding)] += count;
  }

  Ids ids_of(const std::string& text, bool add_special_tokens) const {
    return encoder_.tokenizer_.encode(text, add_special_tokens);
  }

  /// Returns where each token lies in the text.
  std::vector<TextToken> places_of(const Ids& ids, const std::string& text) const {
    std::vector<TextToken> places;
    places.reserve(ids.size());
    std::string spelled;
    for (const TokenId id : ids) {
      const size_t begin = spelled.size();
      spelled += encoder_.tokenizer_.token_bytes(id);
      places.push_back({begin, spelled.size(), encoder_.is_control_[id] != 0});
    }
    if (spelled == text) return places;
    // Some tokenizers put a space in front of a text.
    if (spelled.size() == text.size() + 1 && spelled[0] == ' ' &&
        std::string_view(spelled).substr(1) == text) {
      for (TextToken& place : places) {
        place.begin -= place.begin > 0 ? 1 : 0;
        --place.end;
      }
      return places;
    }
    return places_by_beginnings(ids, text);
  }

  /// Returns the places for a tokenizer that changes the text: where a beginning of the
  /// text has a beginning of the ids, a token ends with it. Only the edges of the data
  /// and what stands beside them are needed, so that the rest shares the tokens between.
  std::vector<TextToken> places_by_beginnings(const Ids& ids,
                                              const std::string& text) const {
    std::vector<TextToken> places(ids.size());
    size_t done = 0;   // ids with a place
    size_t begin = 0;  // the byte of the text behind them
    const auto settle = [&](size_t count, size_t end) {
      for (size_t i = done; i < count; ++i) places[i] = {begin, end, false};
      if (count > done) begin = end;
      done = std::max(done, count);
    };
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool control = encoder_.is_control_[ids[i]] != 0;
      if (!control) continue;
      const std::string spelled = encoder_.tokenizer_.token_bytes(ids[i]);
      const size_t at = text.find(spelled, begin);
      if (at == std::string::npos) {
        fail_input("chat", "the tokens cannot be found in the text again");
      }
      settle(i, at);
      begin = at;
      settle(i + 1, at + spelled.size());
      places[i].is_control = true;
    }
    settle(ids.size(), text.size());
    return refined(ids, text, std::move(places));
  }

  /// Finds the tokens between two control tokens: at each edge of the data as many as the
  /// text up to there has. Throws InputError where that text has other tokens.
  std::vector<TextToken> refined(const Ids& ids, const std::string& text,
                                 std::vector<TextToken> places) const {
    for (size_t first = 0; first < ids.size();) {
      size_t last = first + 1;
      while (last < ids.size() && places[last].begin == places[first].begin &&
             places[last].end == places[first].end) {
        ++last;
      }
      if (!places[first].is_control) refine(ids, text, first, last, places);
      first = last;
    }
    return places;
  }

  void refine(const Ids& ids, const std::string& text, size_t first, size_t last,
              std::vector<TextToken>& places) const {
    const size_t begin = places[first].begin;
    const size_t end = places[first].end;
    // A tokenizer may treat the beginning of a text in another way than what stands
    // behind a control token.
    const size_t before = first > 0 ? 1 : 0;
    const size_t text_begin = before == 1 ? places[first - 1].begin : begin;
    const Ids stretch(ids.begin() + static_cast<std::ptrdiff_t>(first - before),
                      ids.begin() + static_cast<std::ptrdiff_t>(last));
    size_t from = begin;
    size_t count = first;
    for (auto edge = edges_.upper_bound(begin); edge != edges_.end() && *edge < end;
         ++edge) {
      const Ids beginning = ids_of(text.substr(text_begin, *edge - text_begin), false);
      const size_t same = common_ids(stretch, beginning);
      if (beginning.size() > same + kMostAtEdge || same < before) {
        fail_input("chat",
                   "the tokenizer changes the text so much that its tokens cannot be "
                   "found in it again");
      }
      const size_t settled = first - before + same;
      for (; count < settled; ++count) places[count] = {from, *edge, false};
      // A token that lies across the edge begins before it.
      from = same < beginning.size() ? *edge - 1 : *edge;
    }
    for (; count < last; ++count) places[count] = {from, end, false};
  }

  /// Returns the targets of a text's tokens for spans of its bytes: a token is a target
  /// if a byte of it is.
  std::vector<uint8_t> targets_in(std::vector<TextSpan> spans,
                                  const std::vector<TextToken>& places) {
    std::ranges::sort(spans, {}, &TextSpan::begin);
    std::vector<uint8_t> is_target(places.size(), 0);
    size_t first = 0;
    for (const TextSpan& span : spans) {
      while (first < places.size() && places[first].end <= span.begin) ++first;
      for (size_t i = first; i < places.size() && places[i].begin < span.end; ++i) {
        const TextToken& place = places[i];
        if (place.end <= span.begin) continue;
        is_target[i] = 1;
        if (place.begin < span.begin || place.end > span.end) find(Finding::AcrossEdge);
      }
    }
    return is_target;
  }

  /// Counts what is odd in the messages from `first` on.
  void count_in_data(const Conversation& conversation, const Rendered& whole,
                     const std::vector<TextToken>& places, size_t first = 0) {
    std::set<std::pair<int, Field>> printed;
    for (const DataSpan& span : whole.data) printed.emplace(span.message, span.field);
    // Spans and tokens stand in the order of the text.
    auto span = whole.data.begin();
    for (const TextToken& place : places) {
      if (!place.is_control) continue;
      while (span != whole.data.end() && span->end < place.end) ++span;
      if (span == whole.data.end()) break;
      const bool counted =
          span->message < 0 ? first == 0 : static_cast<size_t>(span->message) >= first;
      if (span->begin <= place.begin && counted) find(Finding::ControlInMessage);
    }
    for (size_t i = first; i < conversation.size(); ++i) {
      for (const Field field : {Field::Content, Field::Reasoning, Field::ToolCalls}) {
        if (!conversation.has_field(i, field)) continue;
        if (!printed.contains({static_cast<int>(i), field})) find(Finding::NotPrinted);
      }
    }
  }

  Conversation conversation_of(const OrderedJson& messages) const {
    return {messages, record_.tools, record_.documents, record_.variables};
  }

  Rendered render(const Conversation& conversation, bool add_generation_prompt) const {
    return encoder_.format_.render(conversation, add_generation_prompt, encoder_.day_);
  }

  void add_side(Ids ids, std::vector<uint8_t> is_target, std::string text) {
    if (std::ranges::find(is_target, 1) == is_target.end()) {
      throw InputError("chat", "no token is a target");
    }
    result_.sides.push_back({std::move(ids), std::move(is_target), text.size()});
    if (result_.text.empty()) result_.text = std::move(text);
  }

  template <typename Span>
  void add_edges(const std::vector<Span>& spans) {
    for (const Span& span : spans) {
      edges_.insert(span.begin);
      edges_.insert(span.end);
    }
  }

  void add_chat() {
    find(Finding::Chats);
    const Conversation conversation = conversation_of(record_.prompt);
    const Rendered whole = render(conversation, false);
    Ids ids = ids_of(whole.text, false);
    if (ids.empty()) throw InputError("chat", "the template prints nothing");
    add_edges(whole.data);
    add_edges(whole.generated);
    std::vector<TextToken> places = places_of(ids, whole.text);
    count_in_data(conversation, whole, places);
    std::vector<uint8_t> is_target(ids.size(), 1);
    if (encoder_.targets_ != Targets::All) {
      const Turns turns =
          find_turns(encoder_.format_, encoder_.format_.template_of(conversation),
                     conversation, whole, places, encoder_.targets_, encoder_.day_);
      find(Finding::SilentTurns, turns.silent);
      find(Finding::UnendedTurns, turns.unended);
      const size_t edges = edges_.size();
      add_edges(turns.spans);
      if (edges_.size() > edges) places = places_of(ids, whole.text);
      is_target = targets_in(turns.spans, places);
    }
    add_side(std::move(ids), std::move(is_target), whole.text);
  }

  /// Returns the text and the ids of the prompt with an answer behind it; without an
  /// answer those of the prompt, where the model is asked for one.
  std::pair<std::string, Ids> continued(const OrderedJson* answer) {
    if (record_.plain) {
      auto text = record_.prompt.get<std::string>();
      if (answer != nullptr) {
        text += answer->get<std::string>();
        const auto eos = encoder_.tokenizer_.eos_id();
        const std::string end =
            eos ? encoder_.tokenizer_.id_to_token(*eos).value_or("") : "";
        if (!text.ends_with(end)) text += end;
      }
      Ids ids = ids_of(text, true);
      return {std::move(text), std::move(ids)};
    }
    OrderedJson messages = record_.prompt;
    if (answer != nullptr) {
      for (const OrderedJson& message : *answer) messages.push_back(message);
    }
    const Conversation conversation = conversation_of(messages);
    Rendered whole = render(conversation, answer == nullptr);
    Ids ids = ids_of(whole.text, false);
    if (answer != nullptr) {
      // The prompt stands on both sides of a pair, and is counted on the first.
      const bool again = answer == &record_.rejected;
      count_in_data(conversation, whole, places_of(ids, whole.text),
                    again ? record_.prompt.size() : 0);
    }
    return {std::move(whole.text), std::move(ids)};
  }

  void add_answers() {
    const bool is_pair = record_.kind == ChatRecord::Kind::Pair;
    find(is_pair ? Finding::Pairs : Finding::Chats);
    const Ids prompt = continued(nullptr).second;
    std::vector<std::pair<std::string, Ids>> sides = {continued(&record_.chosen)};
    if (is_pair) sides.push_back(continued(&record_.rejected));
    size_t begin = prompt.size();
    for (const auto& [text, ids] : sides)
      begin = std::min(begin, common_ids(prompt, ids));
    if (begin < prompt.size()) find(Finding::PromptCut);
    if (is_pair && sides[0].second == sides[1].second) {
      throw InputError("chat", "both sides have the same tokens");
    }
    const bool all = encoder_.targets_ == Targets::All && !is_pair;
    for (auto& [text, ids] : sides) {
      std::vector<uint8_t> is_target(ids.size(), 1);
      if (!all) std::fill_n(is_target.begin(), begin, uint8_t{0});
      add_side(std::move(ids), std::move(is_target), std::move(text));
    }
  }

  const ChatEncoder& encoder_;
  const ChatRecord& record_;
  std::set<size_t> edges_;
  EncodedRecord result_;
};

ChatEncoder::ChatEncoder(const tokenizer::Tokenizer& tokenizer, const ChatFormat& format,
                         Targets targets, const Day& day)
    : tokenizer_(tokenizer), format_(format), targets_(targets), day_(day) {
  for (const char* name : {"bos_token", "eos_token"}) {
    const auto token = format.special_tokens().find(name);
    if (token == format.special_tokens().end()) continue;
    const size_t pieces = tokenizer.encode(token->second, false).size();
    if (pieces == 1) continue;
    fail_input("chat",
               "the tokenizer cuts the {} '{}', which the chat template writes, into {}; "
               "transformers' save_pretrained writes a tokenizer.json that has it whole",
               name, token->second, counted(static_cast<int64_t>(pieces), "token"));
  }
  is_control_.resize(static_cast<size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < is_control_.size(); ++id) {
    if (!tokenizer.id_to_token(id)) continue;
    is_control_[id] =
        tokenizer.decode({id}, true).empty() && !tokenizer.decode({id}, false).empty();
  }
}

ChatEncoder::~ChatEncoder() = default;

EncodedRecord ChatEncoder::encode(const ChatRecord& record) const {
  return Work(*this, record).run();
}

}  // namespace longhaul::chat
