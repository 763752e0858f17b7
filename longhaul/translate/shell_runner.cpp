#include "longhaul/translate/shell_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "longhaul/base/text.h"

namespace longhaul::translate {
namespace {

constexpr int kMostCalls = 16;

constexpr std::string_view kDeclares = "export declare local readonly typeset let";
constexpr std::string_view kSets = "read unset getopts mapfile readarray printf";

bool literal(const ShellItem& item) {
  return !item.expanded && !item.word.quoted && item.target.empty() && !item.absent;
}

std::string text_of(const std::vector<ShellItem>& items, size_t place) {
  return place < items.size() ? items[place].target + items[place].word.text : "";
}

/// Returns whether a word of a command is a flag that a value may follow.
bool takes_value(const ShellItem& item) {
  return item.word.text.starts_with("--") && item.target.empty() &&
         item.word.text.find('=') == std::string::npos;
}

}  // namespace

ShellRunner::ShellRunner(const ShellSettings& settings, const std::string& name)
    : variables_(settings, name),
      expansion_(variables_, settings),
      flow_(variables_, name) {}

void ShellRunner::use(const std::set<std::string>& unset) { add_unset(used_, unset); }

ShellWords ShellRunner::expand(std::string_view piece, bool whole) {
  if (flow_.dead()) return {{std::string(piece), true}};
  const ShellWords words = expansion_.piece(piece, whole);
  ShellWords out;
  for (const ShellWord& word : words) {
    use(word.unset);
    if (whole) {
      out.push_back(word);
    } else {
      std::ranges::move(shell_fields(word), std::back_inserter(out));
    }
    variables_.spend(word.text.size() + 64 * out.size());
  }
  return out;
}

void ShellRunner::vanished(std::string_view piece) {
  worked_ = true;
  ShellItem item;
  item.word = {std::string(piece), true};
  item.word.choices = "it is empty, or never set";
  item.absent = true;
  if (!items_.empty() && header_ == Header::None) items_.push_back(std::move(item));
}

bool ShellRunner::takes_target(const ShellItem& item) const {
  if (!literal(item) || in_pattern() || brackets_ || header_ != Header::None)
    return false;
  std::string_view name = item.word.text;
  if (name.ends_with('+')) name.remove_suffix(1);
  if (name.empty() || shell_name_size(name) != name.size()) return false;
  return only_assigns(items_) || has_word(kDeclares, items_.front().word.text);
}

bool ShellRunner::only_assigns(const std::vector<ShellItem>& items) const {
  return std::ranges::all_of(
      items, [](const ShellItem& item) { return !item.target.empty() || item.absent; });
}

void ShellRunner::open(Kind kind) {
  flow_.open(kind);
  constructs_.emplace_back();
}

void ShellRunner::close() {
  flow_.close();
  constructs_.pop_back();
}

void ShellRunner::begin_part(Truth condition) {
  flow_.depend(last_used_);
  flow_.begin_part(condition, written_);
}

void ShellRunner::word(ShellItem item, size_t at) {
  if (in_pattern()) {
    Construct& one = constructs_.back();
    if (one.patterns.empty() && literal(item) && item.word.text == "esac") {
      close();
      completed();
    } else {
      one.patterns.push_back(std::move(item.word));
    }
    return;
  }
  const bool first = items_.empty() || (header_ == Header::Case && items_.size() == 1);
  if (first && !brackets_ && literal(item) && reserved(item, at)) return;
  if (header_ == Header::FunctionName) return define(std::move(item.word.text));
  if (header_ == Header::Function) header_ = Header::None;
  worked_ = true;
  use(item.word.unset);
  if (items_.empty() && literal(item) && item.word.text == "[[") brackets_ = true;
  if (brackets_ && literal(item) && item.word.text == "]]") brackets_ = false;
  items_.push_back(std::move(item));
}

bool ShellRunner::reserved(const ShellItem& item, size_t at) {
  const std::string& text = item.word.text;
  if (header_ == Header::Case) {
    if (text != "in") return false;
    Construct& one = constructs_.back();
    if (!items_.empty()) one.subject = std::move(items_.front().word);
    one.pattern = true;
    flow_.depend(used_);
    used_.clear();
    items_.clear();
    header_ = Header::None;
    return true;
  }
  if (header_ == Header::Function && text == "{") {
    open(Kind::Function);
    constructs_.back().begin = at;
    constructs_.back().name = std::move(function_name_);
    flow_.begin_part(Truth::No, "");
    header_ = Header::None;
    return true;
  }
  if (header_ != Header::None) return false;
  if (text == "!") {
    negated_ = !negated_;
    return true;
  }
  return opens(text) || closes(text, at);
}

bool ShellRunner::opens(const std::string& text) {
  if (text == "if") {
    open(Kind::If);
  } else if (text == "while" || text == "until") {
    open(Kind::Loop);
    constructs_.back().until = text == "until";
  } else if (text == "for" || text == "select") {
    open(Kind::Loop);
    header_ = Header::For;
  } else if (text == "case") {
    open(Kind::Case);
    header_ = Header::Case;
  } else if (text == "{") {
    open(Kind::Group);
  } else if (text == "function") {
    header_ = Header::FunctionName;
  } else {
    return false;
  }
  return true;
}

bool ShellRunner::closes(const std::string& text, size_t at) {
  const bool in_if = flow_.is(Kind::If);
  const bool in_loop = flow_.is(Kind::Loop);
  if (text == "then") {
    if (in_if) begin_part(status_);
  } else if (text == "elif") {
    if (in_if) flow_.end_part();
  } else if (text == "else") {
    if (in_if) flow_.begin_part(Truth::Yes, "");
  } else if (text == "do") {
    const Truth runs =
        constructs_.empty() || !constructs_.back().until ? status_ : opposite(status_);
    // A loop that runs once may run again.
    if (in_loop) begin_part(runs == Truth::No ? runs : Truth::Unknown);
  } else if (text == "}") {
    if (flow_.is(Kind::Function)) {
      Construct& one = constructs_.back();
      const ShellBody body{one.begin, at - 1, 0};
      const std::string name = one.name;
      close();
      if (!flow_.dead()) functions_[name] = body;
    } else if (flow_.is(Kind::Group)) {
      close();
      completed();
    }
  } else if (text == "fi" || text == "done" || text == "esac") {
    const Kind kind = text == "fi" ? Kind::If : text == "done" ? Kind::Loop : Kind::Case;
    if (flow_.is(kind)) {
      close();
      status_ = Truth::Unknown;
      completed();
    }
  } else {
    return false;
  }
  return true;
}

void ShellRunner::end_patterns() {
  Construct& one = constructs_.back();
  Truth any = Truth::No;
  std::string shown;
  for (const ShellWord& pattern : one.patterns) {
    const Truth match = shell_match(one.subject, pattern);
    if (match == Truth::Yes || (match == Truth::Unknown && any == Truth::No)) any = match;
    shown += (shown.empty() ? one.subject.text + " is " : " or ") + pattern.text;
  }
  one.patterns.clear();
  one.pattern = false;
  flow_.begin_part(any, shown);
}

void ShellRunner::end_case_part() {
  if (!in_case()) return;
  flow_.end_part();
  constructs_.back().pattern = true;
}

bool ShellRunner::open_subshell() {
  if (!items_.empty() || header_ != Header::None || in_pattern()) return false;
  open(Kind::Subshell);
  flow_.begin_part(Truth::Yes, "");
  return true;
}

void ShellRunner::close_subshell() {
  if (!flow_.is(Kind::Subshell)) return;
  close();
  status_ = Truth::Unknown;
  completed();
}

bool ShellRunner::names_function(const ShellItem& item) const {
  const bool name = !item.word.text.empty() && literal(item);
  return name && items_.empty() &&
         (header_ == Header::None || header_ == Header::FunctionName);
}

void ShellRunner::define(std::string name) {
  function_name_ = std::move(name);
  header_ = Header::Function;
}

bool ShellRunner::define_last() {
  if (header_ == Header::Function) return true;  // function NAME ()
  if (items_.size() != 1 || !literal(items_[0])) return false;
  define(std::move(items_[0].word.text));
  items_.clear();
  return true;
}

void ShellRunner::and_or(bool is_or) {
  const Truth before = status_;
  open(Kind::AndOr);
  Construct& one = constructs_.back();
  one.is_or = is_or;
  one.before = before;
  one.unset = last_used_;
  if (is_or) written_ += " fails";
  begin_part(is_or ? opposite(before) : before);
}

void ShellRunner::completed() {
  while (flow_.is(Kind::AndOr)) {
    const Construct one = std::move(constructs_.back());
    close();
    const Truth stays = one.is_or ? Truth::Yes : Truth::No;
    if (one.before == stays || (one.before == Truth::Unknown && status_ != stays)) {
      status_ = one.before;
    }
    add_unset(last_used_, one.unset);
  }
}

std::optional<ShellBody> ShellRunner::end_command(std::string_view written) {
  brackets_ = false;
  if (header_ == Header::For) {
    end_loop_header();
    return std::nullopt;
  }
  if (header_ != Header::None) return std::nullopt;
  std::vector<ShellItem> items = std::exchange(items_, {});
  if (items.empty() && !worked_) return std::nullopt;
  if (worked_) written_ = written;
  worked_ = false;
  last_used_ = std::exchange(used_, {});
  call_.reset();
  if (!items.empty()) run(std::move(items));
  if (negated_) status_ = opposite(status_);
  negated_ = false;
  if (call_) return std::exchange(call_, std::nullopt);
  completed();
  return std::nullopt;
}

void ShellRunner::end_call(const ShellBody& body) {
  while (flow_.depth() > body.depth) close();
  expansion_.pop_arguments();
  --calls_;
  header_ = Header::None;
  items_.clear();
  status_ = Truth::Unknown;
  completed();
}

void ShellRunner::end_loop_header() {
  header_ = Header::None;
  const std::vector<ShellItem> items = std::exchange(items_, {});
  worked_ = false;
  flow_.depend(std::exchange(used_, {}));
  status_ = Truth::Unknown;
  if (items.empty()) return;
  std::string choices;
  for (size_t i = 2; i < items.size() && choices.size() < 100; ++i) {
    choices += (choices.empty() ? "" : ", then ") + text_of(items, i);
  }
  const std::string variable = text_of(items, 0);
  written_ = "the loop over " + variable + " runs";
  if (!choices.empty()) choices = variable + " is " + choices;
  if (flow_.dead()) return flow_.touch(variable);
  variables_.forget(variable, choices);
}

void ShellRunner::assign(const std::string& target, ShellWords words, bool array,
                         bool expanded) {
  const bool append = target.ends_with("+=");
  const std::string name = target.substr(0, target.size() - (append ? 2 : 1));
  if (flow_.dead()) return flow_.touch(name);
  // The value changes from turn to turn of a loop, so that it is unknown.
  if (flow_.in_loop() && (expanded || append)) return variables_.forget(name);
  if (append) return variables_.append(name, std::move(words), array);
  variables_.set(name, {std::move(words)});
}

void ShellRunner::assign_array(const std::string& target, ShellWords words,
                               bool expanded) {
  worked_ = true;
  status_ = Truth::Yes;
  assign(target, std::move(words), true, expanded);
}

void ShellRunner::arithmetic(std::string_view text) {
  worked_ = true;
  status_ = Truth::Unknown;
  if (header_ == Header::For) return;
  if (flow_.dead()) return;
  // "X = 1", "X += 1", "X++" set a variable.
  const std::string_view whole = trimmed(text);
  const std::string_view bare = trimmed(whole, "+- \t");
  const size_t size = shell_name_size(bare);
  const std::string name(bare.substr(0, size));
  const std::string_view rest = trimmed(bare.substr(size));
  const bool steps =
      size > 0 && rest.empty() &&
      (whole.find("++") != std::string::npos || whole.find("--") != std::string::npos);
  const bool sets = size > 0 && rest.starts_with('=') && !rest.starts_with("==");
  const bool changes = size > 0 && rest.size() > 1 && rest[1] == '=' &&
                       std::string_view("+-*/%").find(rest[0]) != std::string_view::npos;
  if (!steps && !sets && !changes) {
    const ShellWord value = expansion_.arithmetic(text, text);
    use(value.unset);
    if (!value.variable) status_ = truth(value.text != "0");
    return;
  }
  std::string expression(sets ? rest.substr(1) : name);
  if (steps) expression += whole.find("++") != std::string::npos ? " + 1" : " - 1";
  if (changes) expression += fmt::format(" {} ({})", rest[0], rest.substr(2));
  const ShellWord value = expansion_.arithmetic(expression, "$((" + expression + "))");
  assign(name + "=", {value}, false, changes || steps || value.text != expression);
  status_ = value.variable ? Truth::Unknown : truth(value.text != "0");
}

Truth ShellRunner::test(const std::vector<ShellItem>& items) {
  ShellWords words;
  for (const ShellItem& item : items) {
    if (item.absent && !words.empty() && words.front().text == "[[") {
      words.push_back({"", false, true});  // a word of [[ ]] stays if it is empty
    }
    if (!item.absent) words.push_back(item.word);
    if (!item.absent) words.back().text = item.target + item.word.text;
  }
  return shell_condition(words, [this](const std::string& name) {
    for (const ShellWord& word : variables_.get(name).words) {
      add_unset(last_used_, word.unset);
    }
    return variables_.is_set(name);
  });
}

void ShellRunner::sourced(const std::string& command, const ShellWord& file) {
  // The script that activates a Python environment sets no variables of the training's
  // flags.
  if (command != "eval" && file.text.ends_with("activate")) return;
  const std::string what = fmt::format("`{} {}`", command, file.text);
  if (command != "eval" && flow_.uncertain()) {
    out_.remarks.push_back(what +
                           " may set other values: see whether that file is there");
    return;
  }
  out_.remarks.push_back(what + " may set any variable, so that none before it is known");
  variables_.forget_all();
}

void ShellRunner::set_by_command(const std::vector<ShellItem>& items) {
  const bool unsets = items[0].word.text == "unset";
  for (size_t i = 1; i < items.size(); ++i) {
    const std::string name = text_of(items, i);
    if (name.empty() || shell_name_size(name) != name.size()) continue;
    if (flow_.dead()) {
      flow_.touch(name);
    } else if (unsets) {
      variables_.set(name, {{}, false});
    } else {
      variables_.forget(name);
    }
  }
}

bool ShellRunner::builtin(const std::vector<ShellItem>& items) {
  const std::string& word = items[0].word.text;
  status_ = Truth::Unknown;
  if (has_word(kSets, word)) {
    set_by_command(items);
    return true;
  }
  if (has_word(kDeclares, word)) {
    for (size_t i = 1; i < items.size(); ++i) {
      if (word == "let" && !items[i].absent) arithmetic(text_of(items, i));
      if (word == "let" || items[i].target.empty()) continue;
      assign(items[i].target, {items[i].word}, false, items[i].expanded);
    }
    worked_ = false;
    if (word != "let") status_ = Truth::Yes;
    return true;
  }
  if (flow_.dead()) return true;
  if (word == "[" || word == "[[" || word == "test") {
    status_ = test(items);
  } else if (word == ":" || word == "true" || word == "false") {
    status_ = truth(word != "false");
  } else if (word == "source" || word == "." || word == "eval") {
    if (items.size() > 1) sourced(word, items[1].word);
  } else if (word == "exit") {
    flow_.exits();
  } else if (word == "shift") {
    expansion_.shift_arguments();
  } else if (word == "set") {
    const auto dashes = std::ranges::find_if(
        items, [](const ShellItem& item) { return item.word.text == "--"; });
    if (dashes == items.end()) return true;
    ShellWords words;
    for (auto item = dashes + 1; item != items.end(); ++item) {
      if (!item->absent) words.push_back(item->word);
    }
    if (calls_ > 0) expansion_.pop_arguments();
    expansion_.push_arguments(std::move(words));
  } else {
    return false;
  }
  return true;
}

void ShellRunner::run(std::vector<ShellItem> items) {
  if (only_assigns(items)) {
    status_ = Truth::Yes;
    for (ShellItem& item : items) {
      if (item.absent) continue;
      if (item.word.variable) status_ = Truth::Unknown;
      assign(item.target, {std::move(item.word)}, false, item.expanded);
    }
    return;
  }
  if ((items[0].target.empty() && builtin(items)) || flow_.dead()) return;
  const std::string& word = items[0].word.text;
  const size_t bracket = word.find('[');
  if (bracket != std::string::npos && bracket > 0 && shell_name_size(word) == bracket &&
      word.find("]=") != std::string::npos) {
    return variables_.forget(word.substr(0, bracket));
  }
  const auto function = functions_.find(word);
  if (function == functions_.end() || calls_ >= kMostCalls) return emit(items);
  call_ = function->second;
  call_->depth = flow_.depth();
  variables_.spend(8192 + call_->end - call_->begin);
  ShellWords arguments;
  for (size_t i = 1; i < items.size(); ++i) {
    if (!items[i].absent) arguments.push_back(std::move(items[i].word));
  }
  expansion_.push_arguments(std::move(arguments));
  ++calls_;
}

void ShellRunner::emit(const std::vector<ShellItem>& items) {
  ShellCommand command;
  for (size_t i = 0; i < items.size(); ++i) {
    const ShellItem& item = items[i];
    // A flag whose value is never set has to be filled in.
    const bool lacks = item.absent && i > 0 && takes_value(items[i - 1]) &&
                       (i + 1 == items.size() || items[i + 1].word.text.starts_with('-'));
    if (item.absent && !lacks) continue;
    command.words.push_back(item.word);
    command.words.back().text = text_of(items, i);
  }
  command.unset = flow_.unset();
  add_unset(command.unset, last_used_);
  if (!command.words.empty()) out_.commands.push_back(std::move(command));
  status_ = Truth::Unknown;
}

ShellText ShellRunner::finish() {
  while (!flow_.empty()) close();
  return std::move(out_);
}

}  // namespace longhaul::translate
