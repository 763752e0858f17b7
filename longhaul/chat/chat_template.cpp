#include "longhaul/chat/chat_template.h"

#include <fmt/format.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <new>
#include <span>
#include <utility>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/chat/template_values.h"

namespace longhaul::chat {
namespace {

using Tokens = std::vector<jinja::token>;
using Token = jinja::token;

// The parser and what frees its tree call themselves for each level of these.
constexpr size_t kMostTagTokens = 4096;
constexpr int kMostBrackets = 64;
constexpr int kMostBlocks = 150;

constexpr const char* kGeneration = "__generation";

/// Sets the limits of this thread's engine for a scope.
class LimitedScope {
 public:
  LimitedScope(int64_t steps, int64_t bytes)
      : limits_{steps, bytes, kMostDepth, &is_printable, &append_lower},
        before_(std::exchange(jinja::current_limits, &limits_)) {}
  int64_t steps_left() const { return limits_.steps; }
  ~LimitedScope() { jinja::current_limits = before_; }
  LimitedScope(const LimitedScope&) = delete;
  LimitedScope& operator=(const LimitedScope&) = delete;

 private:
  jinja::limits limits_;
  jinja::limits* before_;
};

/// Returns what the engine says on one line, with the place in the template.
std::string words_of_engine(const std::string& what) {
  const size_t error = what.rfind("Error: ");
  std::string words = error == std::string::npos ? what : what.substr(error + 7);
  const size_t line = what.find("at line ");
  if (error != std::string::npos && line != std::string::npos) {
    words += " (" + what.substr(line + 3, what.find(" in source", line) - line - 3) + ")";
  }
  std::ranges::replace(words, '\n', ' ');
  return words;
}

/// Returns the text with LF for each kind of line end, as Jinja reads it.
std::string with_plain_lines(const std::string& source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 == source.size() || source[i + 1] != '\n') text += '\n';
    } else {
      text += source[i];
    }
  }
  return text;
}

bool is_word(const Token& token, std::string_view word) {
  return token.t == Token::identifier && token.value == word;
}

/// The depth to which blocks are nested, an elif counting as an if in the if's else.
class BlockDepth {
 public:
  /// Takes a statement's tokens without the marks around it. Returns the depth.
  int add(std::span<const Token> tag) {
    if (tag.empty() || tag[0].t != Token::identifier) return depth_;
    const std::string& name = tag[0].value;
    if (name.starts_with("end")) {
      if (!open_.empty()) {
        depth_ -= open_.back();
        open_.pop_back();
      }
    } else if (name == "elif" && !open_.empty()) {
      ++open_.back();
      ++depth_;
    } else if (opens_block(name, tag)) {
      open_.push_back(1);
      ++depth_;
    }
    return depth_;
  }

 private:
  static bool opens_block(const std::string& name, std::span<const Token> tag) {
    if (name == "set") {
      return std::ranges::none_of(
          tag, [](const Token& token) { return token.t == Token::equals; });
    }
    return name == "if" || name == "for" || name == "macro" || name == "call" ||
           name == "filter" || name == "generation";
  }
  std::vector<int> open_;
  int depth_ = 0;
};

/// Returns the place behind the tag that begins at `begin`. Throws what() of a template
/// whose tags are too large or nested too deep for the parser.
size_t end_of_tag(const Tokens& tokens, size_t begin) {
  int brackets = 0;
  for (size_t i = begin + 1; i < tokens.size(); ++i) {
    switch (tokens[i].t) {
      case Token::close_statement:
      case Token::close_expression:
        return i + 1;
      case Token::open_paren:
      case Token::open_square_bracket:
      case Token::open_curly_bracket:
        ++brackets;
        break;
      case Token::close_paren:
      case Token::close_square_bracket:
      case Token::close_curly_bracket:
        --brackets;
        break;
      default:
        break;
    }
    if (brackets > kMostBrackets || i - begin > kMostTagTokens) {
      throw std::runtime_error(
          fmt::format("Error: a tag of more than {} parts, or with brackets nested "
                      "deeper than {}",
                      kMostTagTokens, kMostBrackets));
    }
  }
  return tokens.size();
}

/// Returns the tokens with a call of kGeneration in place of {% generation %}, as
/// transformers parses it. Throws what() of a template that the parser may not see.
Tokens checked_tokens(const Tokens& tokens, bool& marks_generation) {
  Tokens out;
  BlockDepth depth;
  for (size_t i = 0; i < tokens.size();) {
    if (tokens[i].t != Token::open_statement && tokens[i].t != Token::open_expression) {
      out.push_back(tokens[i++]);
      continue;
    }
    const size_t end = end_of_tag(tokens, i);
    const std::span tag(&tokens[i] + 1, end - i - 1);
    if (tokens[i].t == Token::open_statement && depth.add(tag) > kMostBlocks) {
      throw std::runtime_error(
          fmt::format("Error: blocks nested deeper than {}", kMostBlocks));
    }
    const bool alone = tag.size() == 2 && tokens[i].t == Token::open_statement;
    if (alone && (is_word(tag[0], "generation") || is_word(tag[0], "endgeneration"))) {
      const size_t pos = tag[0].pos;
      out.push_back(tokens[i]);
      if (is_word(tag[0], "generation")) {
        marks_generation = true;
        out.push_back({Token::identifier, "call", pos});
        out.push_back({Token::identifier, kGeneration, pos});
        out.push_back({Token::open_paren, "(", pos});
        out.push_back({Token::close_paren, ")", pos});
      } else {
        out.push_back({Token::identifier, "endcall", pos});
      }
      out.push_back(tag[1]);
    } else {
      out.insert(out.end(), tokens.begin() + static_cast<std::ptrdiff_t>(i),
                 tokens.begin() + static_cast<std::ptrdiff_t>(end));
    }
    i = end;
  }
  return out;
}

/// Returns what the block of {% generation %} prints, between two marks.
jinja::value generated_block(const jinja::func_args& args) {
  const jinja::value caller = args.ctx.get_val("caller");
  const jinja::value printed = caller->invoke(jinja::func_args(args.ctx));
  auto marked = jinja::mk_val<jinja::value_string>();
  marked->val_str.parts.push_back({kGenerationBegins, ""});
  marked->val_str.append(printed->val_str);
  marked->val_str.parts.push_back({kGenerationEnds, ""});
  return marked;
}

std::string formatted_day(const Day& day, const std::string& format) {
  std::tm time{};
  time.tm_year = day.year - 1900;
  time.tm_mon = day.month - 1;
  time.tm_mday = day.day;
  time.tm_isdst = -1;
  std::mktime(&time);  // fills the day of the week and of the year
  if (format.empty()) return {};
  char text[512];
  if (std::strftime(text, sizeof(text), format.c_str(), &time) == 0) {
    throw std::runtime_error("strftime_now of a long text");
  }
  return text;
}

/// Copies the printed parts into a text with its spans.
Rendered from_parts(const std::vector<jinja::string_part>& parts) {
  Rendered result;
  std::vector<size_t> open;
  for (const jinja::string_part& part : parts) {
    if (part.is_input == kGenerationBegins) {
      open.push_back(result.text.size());
    } else if (part.is_input == kGenerationEnds && !open.empty()) {
      if (open.size() == 1 && open[0] < result.text.size()) {
        result.generated.push_back({open[0], result.text.size()});
      }
      open.pop_back();
    } else if (part.is_input > 0 && !part.val.empty()) {
      DataSpan span = span_of_mark(part.is_input);
      span.begin = result.text.size();
      span.end = span.begin + part.val.size();
      result.data.push_back(span);
    }
    result.text += part.val;
  }
  return result;
}

}  // namespace

Day parse_day(const std::string& text) {
  using namespace std::chrono;
  const auto seconds_of_day = utc_seconds(text);
  if (text.size() != 10 || !seconds_of_day) {
    fail_input("chat", "'{}' is no day; write it as 2026-11-30", text);
  }
  const year_month_day date(floor<days>(sys_seconds(seconds(*seconds_of_day))));
  return {int{date.year()}, static_cast<int>(unsigned{date.month()}),
          static_cast<int>(unsigned{date.day()})};
}

Day today() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return {time.tm_year + 1900, time.tm_mon + 1, time.tm_mday};
}

std::string day_text(const Day& day) {
  return fmt::format("{:04}-{:02}-{:02}", day.year, day.month, day.day);
}

struct Conversation::Values {
  std::vector<jinja::value> messages;
  jinja::value tools;
  jinja::value documents;
  std::vector<std::pair<std::string, jinja::value>> variables;
  int64_t bytes = 0;
};

namespace {

bool is_blank_text(const OrderedJson& json) {
  if (json.is_null()) return true;
  if (json.is_string()) {
    return json.get_ref<const std::string&>().find_first_not_of(" \t\r\n") ==
           std::string::npos;
  }
  return json.empty();
}

Field field_of(const std::string& key) {
  if (key == "content") return Field::Content;
  if (key == "tool_calls") return Field::ToolCalls;
  const bool reasoning =
      key == "reasoning_content" || key == "reasoning" || key == "thinking";
  return reasoning ? Field::Reasoning : Field::Other;
}

/// Returns a message without its keys that are null, and with its reasoning under each
/// name that templates read, as transformers hands messages to templates.
OrderedJson as_templates_take_it(const OrderedJson& message) {
  OrderedJson out = OrderedJson::object();
  const OrderedJson* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (reasoning == nullptr && found != message.end() && !found->is_null()) {
      reasoning = &*found;
    }
  }
  if (reasoning != nullptr) out["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = value;
  }
  if (reasoning != nullptr) out["reasoning_content"] = *reasoning;
  return out;
}

/// Returns whether a variable of templates has its value from elsewhere than a record's
/// settings.
bool is_given(const std::string& name) {
  for (const std::string_view given :
       {"messages", "add_generation_prompt", "tools", "documents", "strftime_now",
        "raise_exception", kGeneration, "bos_token", "eos_token", "unk_token",
        "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (name == given) return true;
  }
  return false;
}

}  // namespace

Conversation::Conversation(const OrderedJson& messages, const OrderedJson& tools,
                           const OrderedJson& documents, const OrderedJson& variables)
    : values_(std::make_unique<Values>()) {
  if (!messages.is_array() || messages.empty()) {
    throw InputError("chat", "no list of messages, or an empty one");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) {
      fail_input("chat", "message {} is no object", i + 1);
    }
    const OrderedJson message = as_templates_take_it(messages[i]);
    auto value = jinja::mk_val<jinja::value_object>();
    uint8_t fields = 0;
    for (const auto& [key, item] : message.items()) {
      const Field field = field_of(key);
      value->insert(key, value_of(item, mark_of(i, field)));
      if (!is_blank_text(item)) {
        fields = static_cast<uint8_t>(fields | (1U << static_cast<unsigned>(field)));
      }
    }
    values_->messages.push_back(value);
    const auto role = message.find("role");
    const bool has_role = role != message.end() && role->is_string();
    roles_.push_back(has_role ? role->get<std::string>() : "");
    fields_.push_back(fields);
    values_->bytes += static_cast<int64_t>(json_text(message).size());
  }
  const auto list = [&](const OrderedJson& json, const char* name) {
    if (!json.is_null() && !json.is_array()) fail_input("chat", "'{}' is no list", name);
    values_->bytes += static_cast<int64_t>(json_text(json).size());
    return value_of(json, kOfNoMessage);
  };
  values_->tools = list(tools, "tools");
  values_->documents = list(documents, "documents");
  if (variables.is_null()) return;
  if (!variables.is_object()) {
    throw InputError("chat", "'chat_template_kwargs' is no object");
  }
  for (const auto& [key, item] : variables.items()) {
    if (is_given(key)) {
      fail_input("chat",
                 "'chat_template_kwargs' has '{}', which the record itself, the build or "
                 "the tokenizer gives; take it out",
                 key.substr(0, 40));
    }
    values_->variables.emplace_back(key, value_of(item, kOfNoMessage));
  }
}

Conversation::~Conversation() = default;
Conversation::Conversation(Conversation&&) noexcept = default;

bool Conversation::has_tools() const { return !values_->tools->is_none(); }

bool Conversation::is_assistant(size_t message) const {
  return roles_[message] == "assistant" || roles_[message] == "model";
}

bool Conversation::has_field(size_t message, Field field) const {
  return ((fields_[message] >> static_cast<unsigned>(field)) & 1U) != 0;
}

struct ChatTemplate::Program {
  std::string source;
  jinja::program tree;
};

ChatTemplate::ChatTemplate(const std::string& source, std::string name)
    : name_(std::move(name)), program_(std::make_unique<Program>()) {
  if (source.size() > kMostTemplateBytes) {
    fail_input("chat", "{}: {} is no size of a chat template", name_,
               human_bytes(source.size()));
  }
  program_->source = with_plain_lines(source);
  const LimitedScope limits(kMostSteps, kMostBytes);
  try {
    jinja::lexer_result read = jinja::lexer().tokenize(program_->source);
    read.tokens = checked_tokens(read.tokens, marks_generation_);
    prints_day_ = std::ranges::any_of(
        read.tokens, [](const Token& token) { return is_word(token, "strftime_now"); });
    program_->tree = jinja::parse_from_tokens(read);
  } catch (const std::exception& error) {
    fail_input("chat", "{}: not a template that this program can read: {}", name_,
               words_of_engine(error.what()));
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

Rendered ChatTemplate::render(const Conversation& conversation, size_t messages,
                              bool add_generation_prompt,
                              const std::map<std::string, std::string>& special_tokens,
                              const Day& day) const {
  using namespace jinja;
  const Conversation::Values& values = *conversation.values_;
  const int64_t most_steps = kMostSteps + 20 * values.bytes;
  const int64_t most_bytes = kMostBytes + 200 * values.bytes;
  const LimitedScope limits(most_steps, most_bytes);
  try {
    context ctx(program_->source);
    for (const auto& [token, text] : special_tokens) {
      ctx.set_val(token, mk_val<value_string>(text));
    }
    ctx.set_val("messages",
                mk_val<value_array>(std::vector<value>(
                    values.messages.begin(),
                    values.messages.begin() + static_cast<std::ptrdiff_t>(messages))));
    ctx.set_val("tools", values.tools);
    ctx.set_val("documents", values.documents);
    ctx.set_val("add_generation_prompt", mk_val<value_bool>(add_generation_prompt));
    for (const auto& [key, item] : values.variables) ctx.set_val(key, item);
    ctx.set_val(kGeneration, mk_val<value_func>(kGeneration, generated_block));
    ctx.set_val("strftime_now",
                mk_val<value_func>("strftime_now", [day](const func_args& args) -> value {
                  args.ensure_vals<value_string>();
                  return mk_val<value_string>(
                      formatted_day(day, args.get_pos(0)->as_string().str()));
                }));
    const value_array printed = runtime(ctx).execute(program_->tree);
    Rendered result = from_parts(runtime::gather_string_parts(printed)->val_str.parts);
    result.steps = most_steps - limits.steps_left();
    return result;
  } catch (const limit_reached& limit) {
    const std::string_view what = limit.what;
    const std::string most = what == "depth" ? fmt::format("{} levels", kMostDepth)
                             : what == "steps"
                                 ? fmt::format("{} steps", grouped(most_steps))
                                 : human_bytes(static_cast<uint64_t>(most_bytes));
    fail_input("chat",
               "{}: the template needs more than {} for this conversation, as one does "
               "that loops, prints or nests without end",
               name_, most);
  } catch (const std::bad_alloc&) {
    throw;  // The machine's memory is at its end, which is no fault of the conversation.
  } catch (const std::exception& error) {
    fail_input("chat", "{} refuses the conversation: {}", name_,
               words_of_engine(error.what()));
  }
}

}  // namespace longhaul::chat
