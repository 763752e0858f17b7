#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::chat {

/// A day, which strftime_now of a template prints.
struct Day {
  int year = 1970;
  int month = 1;  ///< from 1
  int day = 1;    ///< from 1
};
/// Reads "2026-11-30". Throws InputError for anything else, and for days that no calendar
/// has.
Day parse_day(const std::string& text);
/// Returns the day of now, in local time.
Day today();
std::string day_text(const Day& day);

/// The parts of a message whose characters a rendered text marks.
enum class Field : uint8_t { Content, Reasoning, ToolCalls, Other };

/// A run of characters of a rendered text that comes from the data.
struct DataSpan {
  size_t begin = 0;  ///< bytes
  size_t end = 0;
  int message = -1;  ///< -1: from tools, documents or settings
  Field field = Field::Other;
};

/// A range of bytes of a rendered text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextSpan&) const = default;
};

/// What a template makes of a conversation.
struct Rendered {
  std::string text;
  std::vector<DataSpan> data;       ///< in the order of the text
  std::vector<TextSpan> generated;  ///< what stands in {% generation %}
  int64_t steps = 0;                ///< what the template did; it bounds the time
};

/// A conversation in the form in which templates take it. Immutable; any thread may use
/// it.
class Conversation {
 public:
  /// Takes what transformers' apply_chat_template takes: a list of messages, `tools` and
  /// `documents` (null: none), and other variables of the template (an object or null).
  /// As there, the keys of a message that are null count as absent, and reasoning is
  /// known by each of its names. Throws InputError for what is no such list, for numbers
  /// beyond 64 bits and for values nested deeper than 64.
  Conversation(const OrderedJson& messages, const OrderedJson& tools,
               const OrderedJson& documents, const OrderedJson& variables);
  ~Conversation();
  Conversation(Conversation&&) noexcept;

  size_t size() const { return roles_.size(); }
  bool has_tools() const;
  /// Returns the role of a message; empty where it has none.
  const std::string& role(size_t message) const { return roles_[message]; }
  bool is_assistant(size_t message) const;
  /// Returns whether a message has a text of this kind that is not blank.
  bool has_field(size_t message, Field field) const;

 private:
  friend class ChatTemplate;
  struct Values;
  std::unique_ptr<Values> values_;
  std::vector<std::string> roles_;
  std::vector<uint8_t> fields_;  // bit Field for each message
};

/// What a rendering may use at most. A template that needs more is refused.
inline constexpr int64_t kMostSteps = 1'000'000;
/// What the renderings that find a conversation's turns may use together.
inline constexpr int64_t kMostStepsOfTurns = 100'000'000;
inline constexpr int64_t kMostBytes = int64_t{1} << 28;
inline constexpr int64_t kMostDepth = 600;
inline constexpr size_t kMostTemplateBytes = size_t{1} << 20;

/// A Jinja template of conversations, as transformers renders it. Immutable; any thread
/// may render.
class ChatTemplate {
 public:
  /// Parses a template. `name` stands for it in messages. Throws InputError, with the
  /// line, for what is no template, or has parts that this program does not know.
  ChatTemplate(const std::string& source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  const std::string& name() const { return name_; }
  /// Returns whether the template says by {% generation %} what a model writes.
  bool marks_generation() const { return marks_generation_; }
  bool prints_day() const { return prints_day_; }

  /// Renders the first `messages` messages. `special_tokens` are variables such as
  /// "bos_token". Throws InputError where the template refuses the conversation, or goes
  /// beyond a limit, which depends on the conversation's size and never on time.
  Rendered render(const Conversation& conversation, size_t messages,
                  bool add_generation_prompt,
                  const std::map<std::string, std::string>& special_tokens,
                  const Day& day) const;

 private:
  struct Program;
  std::string name_;
  bool marks_generation_ = false;
  bool prints_day_ = false;
  std::unique_ptr<Program> program_;
};

}  // namespace longhaul::chat
