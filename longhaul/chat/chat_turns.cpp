#include "longhaul/chat/chat_turns.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::chat {
namespace {

/// Returns how many bytes two texts have in common at their beginning, without a part of
/// a character.
size_t common_bytes(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < most && a[same] == b[same]) ++same;
  while (same > 0 && same < a.size() &&
         (static_cast<unsigned char>(a[same]) & 0xC0U) == 0x80U) {
    --same;
  }
  return same;
}

size_t end_of_data(const Rendered& rendered) {
  return rendered.data.empty() ? 0 : rendered.data.back().end;
}

class TurnFinder {
 public:
  TurnFinder(const ChatFormat& format, const ChatTemplate& chat_template,
             const Conversation& conversation, const Rendered& whole,
             const std::vector<TextToken>& tokens, const Day& day)
      : format_(format),
        template_(chat_template),
        conversation_(conversation),
        whole_(whole),
        tokens_(tokens),
        day_(day) {}

  Turns run(Targets targets) {
    std::vector<int> messages;
    for (size_t i = 0; i < conversation_.size(); ++i) {
      if (conversation_.is_assistant(i)) messages.push_back(static_cast<int>(i));
    }
    if (messages.empty()) {
      throw InputError("chat",
                       "no message is the assistant's, so that nothing is learned");
    }
    if (targets == Targets::Last) messages = {messages.back()};
    if (template_.marks_generation()) {
      take_generated(messages, targets);
    } else {
      for (const int message : messages) add_turn(message);
    }
    if (turns_.spans.empty()) {
      throw InputError("chat", "the template prints nothing of the assistant's turns");
    }
    return turns_;
  }

 private:
  /// Returns where a message's characters begin and end; nothing if none is printed.
  TextSpan data_of(int message) const {
    TextSpan found;
    for (const DataSpan& span : whole_.data) {
      if (span.message != message) continue;
      if (found.end == 0) found.begin = span.begin;
      found.end = span.end;
    }
    return found;
  }

  /// Returns the texts of a message that a rendered text prints, one after another.
  static std::string texts_of(const Rendered& rendered, int message) {
    std::string texts;
    for (const DataSpan& span : rendered.data) {
      if (span.message != message) continue;
      texts.append(rendered.text, span.begin, span.end - span.begin);
    }
    return texts;
  }

  /// A message's characters, and how much the template prints behind them for the
  /// message.
  struct OwnText {
    TextSpan data;
    size_t behind = 0;
  };

  /// Returns what is a message's own. A name that an answer to the message's tool calls
  /// repeats is not: it is not there before the answer is.
  OwnText own_text_of(int message) const {
    OwnText own{data_of(message), 0};
    const auto number = static_cast<size_t>(message);
    if (!conversation_.has_field(number, Field::ToolCalls)) return own;
    if (number + 1 == conversation_.size()) {
      own.behind = whole_.text.size() - own.data.end;
      return own;
    }
    // The text before there was an answer. Its beginning may be gone in the whole text,
    // such as the reasoning of a turn that is past.
    Rendered alone;
    try {
      alone = before(message + 1, false);
    } catch (const InputError&) {
      return own;  // The template refuses a conversation that ends here.
    }
    own.behind = alone.text.size() - end_of_data(alone);
    const std::string printed = texts_of(alone, message);
    std::string texts;
    for (const DataSpan& span : whole_.data) {
      if (span.message != message) continue;
      texts.append(whole_.text, span.begin, span.end - span.begin);
      if (printed.ends_with(texts)) own.data.end = span.end;
    }
    return own;
  }

  void take_generated(const std::vector<int>& messages, Targets targets) {
    for (const int message : messages) {
      bool any = false;
      for (const TextSpan& span : whole_.generated) {
        const bool holds = std::ranges::any_of(whole_.data, [&](const DataSpan& data) {
          return data.message == message && data.begin < span.end &&
                 data.end > span.begin;
        });
        any = any || holds;
        if (holds && targets == Targets::Last) turns_.spans.push_back(span);
      }
      if (!any) ++turns_.silent;
    }
    if (targets == Targets::Assistant) turns_.spans = whole_.generated;
  }

  Rendered before(int message, bool add_generation_prompt) const {
    Rendered result =
        template_.render(conversation_, static_cast<size_t>(message),
                         add_generation_prompt, format_.special_tokens(), day_);
    steps_ += result.steps;
    return result;
  }

  /// Returns what stands before a message of the assistant.
  Rendered in_front_of(int message, bool add_generation_prompt) const {
    try {
      return before(message, add_generation_prompt);
    } catch (const InputError& error) {
      fail_input(
          "chat",
          "message {} is the assistant's, and its beginning cannot be found, since "
          "the template refuses what stands before it; give a template with "
          "{{% generation %}}, or begin chats with the user ({})",
          message + 1, error.what());
    }
  }

  /// A place of the text, and whether all of the generation prompt stands before it.
  struct Begin {
    size_t place = 0;
    bool behind_prompt = false;
  };

  /// Returns whether no message but the system's stands before this one.
  bool is_opening(int message) const {
    for (int i = 0; i < message; ++i) {
      const std::string& role = conversation_.role(static_cast<size_t>(i));
      if (role != "system" && role != "developer") return false;
    }
    return true;
  }

  /// Returns whether the first control token of a prompt stands in a part of the text.
  bool begins_again(std::string_view prompt, size_t begin, size_t end) const {
    size_t first = prompt.size();
    std::string_view opener;
    for (const TextToken& token : tokens_) {
      if (!token.is_control) continue;
      const std::string_view spelled =
          std::string_view(whole_.text).substr(token.begin, token.end - token.begin);
      const size_t at = spelled.empty() ? prompt.npos : prompt.find(spelled);
      if (at < first) {
        first = at;
        opener = spelled;
      }
    }
    if (opener.empty()) opener = prompt;
    return std::string_view(whole_.text).substr(0, end).find(opener, begin) !=
           std::string_view::npos;
  }

  /// Returns where the text leaves what the generation prompt would have written. `first`
  /// is the first character from the data in the turn or behind it.
  Begin begin_of(int message, size_t first) const {
    size_t from = 0;  // behind the last character of the data in front of the turn
    for (const DataSpan& span : whole_.data) {
      if (span.begin < first) from = span.end;
    }
    const Rendered asked = in_front_of(message, true);
    const std::string_view prompt =
        std::string_view(asked.text).substr(end_of_data(asked));
    const std::string_view text = std::string_view(whole_.text).substr(from);
    const size_t same = common_bytes(text, prompt);
    size_t place = from + same;
    // Two control tokens may begin with the same characters.
    for (const TextToken& token : tokens_) {
      if (token.is_control && token.begin < place && place < token.end) {
        place = token.begin;
      }
    }
    bool known = true;
    const bool early = same < prompt.size();
    if (early || is_opening(message)) {
      const Rendered not_asked = in_front_of(message, false);
      const size_t common = common_bytes(asked.text, not_asked.text);
      const size_t shared = common - std::min(common, end_of_data(asked));
      if (early) {
        // The text may leave the generation prompt early, but not what stands before it.
        // Some of the prompt must be there, and the turn must not begin once more.
        known = place - from > shared &&
                !(message == 0 && begins_again(prompt.substr(shared), place, first));
      } else if (shared == prompt.size()) {
        // Behind no user's message some templates write no generation prompt.
        known = place >= first ||
                trimmed(text.substr(place - from, first - place), " \n").empty();
      }
    }
    if (!known) {
      fail_input("chat",
                 "the beginning of message {} is not known: the template writes "
                 "something else before it than where the model is asked for it; give "
                 "a template with {{% generation %}}",
                 message + 1);
    }
    return {place, same == prompt.size()};
  }

  /// Returns the first place from `place` on whose character another message's data
  /// gives.
  size_t next_data(int message, size_t place) const {
    size_t next = whole_.text.size();
    for (const DataSpan& span : whole_.data) {
      const bool behind = span.begin >= place && span.message != message;
      if (behind) next = std::min(next, span.begin);
    }
    return next;
  }

  /// Returns where the data of the messages behind this one begin.
  size_t next_message(int message) const {
    for (const DataSpan& span : whole_.data) {
      if (span.message > message) return span.begin;
    }
    return whole_.text.size();
  }

  void add_turn(int message) {
    // A rendering of what stands before each turn takes the square of the turns.
    if (steps_ > kMostStepsOfTurns) {
      fail_input(
          "chat",
          "the chat is too long: to find the assistant's turns up to message {} the "
          "template took more than {} steps; cut the chat into shorter ones, or "
          "give a template with {{% generation %}}",
          message, grouped(kMostStepsOfTurns));
    }
    const auto [data, behind] = own_text_of(message);
    const bool has_data = data.end > 0;
    const Begin begin = begin_of(message, has_data ? data.begin : next_message(message));
    TextSpan turn{begin.place, std::max(begin.place, data.end)};
    const size_t next = next_data(message, turn.end);
    auto end = std::ranges::find_if(tokens_, [&](const TextToken& token) {
      return token.is_control && token.begin >= turn.end;
    });
    const bool ends = end != tokens_.end() && end->begin < next;
    // A message without data may be left out by the template. It is there where its end
    // follows the generation prompt, or the part of it that is there.
    const bool at_end =
        ends &&
        trimmed(std::string_view(whole_.text).substr(turn.end, end->begin - turn.end),
                " \n")
            .empty();
    if (!has_data && !(ends && (begin.behind_prompt || at_end))) {
      ++turns_.silent;
      return;
    }
    if (ends) {
      turn.end = end->end;
      // Behind a call of tools its own end may stand first, then that of the turn.
      const size_t last = std::min(next, data.end + behind);
      for (++end; end != tokens_.end(); ++end) {
        const bool follows = end->is_control && end->begin == turn.end;
        if (!follows || end->end > last) break;
        turn.end = end->end;
      }
    } else {
      ++turns_.unended;
    }
    for (const DataSpan& span : whole_.data) {
      if (span.message == message || span.message < 0) continue;
      if (span.begin < turn.end && span.end > turn.begin) {
        fail_input("chat",
                   "text of message {} stands inside of the turn of message {}; give a "
                   "template with {{% generation %}}",
                   span.message + 1, message + 1);
      }
    }
    turns_.spans.push_back(turn);
  }

  const ChatFormat& format_;
  const ChatTemplate& template_;
  const Conversation& conversation_;
  const Rendered& whole_;
  const std::vector<TextToken>& tokens_;
  const Day& day_;
  mutable int64_t steps_ = 0;  ///< of all renderings
  Turns turns_;
};

}  // namespace

Turns find_turns(const ChatFormat& format, const ChatTemplate& chat_template,
                 const Conversation& conversation, const Rendered& whole,
                 const std::vector<TextToken>& tokens, Targets targets, const Day& day) {
  return TurnFinder(format, chat_template, conversation, whole, tokens, day).run(targets);
}

}  // namespace longhaul::chat
